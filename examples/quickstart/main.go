package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	client, err := recipes.Connect(ctx, []string{"127.0.0.1:2181"}) // once per process
	if err != nil {
		log.Fatal(err)
	}
	lock, err := mutex.New(client, "/locks/goods/1001")
	if err == nil {
		err = lock.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
			log.Println("locked; fencing token:", lease.FencingToken()) // your work: pass ctx on
			return ctx.Err()                                            // ctx ends when the lock is lost
		})
	}
	_ = client.Close()
	if stop(); err != nil {
		log.Fatal(err)
	}
}
