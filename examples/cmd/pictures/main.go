// Pictures draws the pictures of docs/concepts.md and of the README as SVG:
//
//	go run ./examples/cmd/pictures docs/pictures
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: pictures DIRECTORY")
	}
	for _, p := range pictures() {
		if err := os.WriteFile(filepath.Join(os.Args[1], p.name+".svg"), []byte(p.draw()), 0o644); err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.name + ".svg")
	}
}
