package agent

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Serve is the other side, for a peer in Go. It runs each command in order with those of the same first word, and side by side
// with others, and returns at the end of the input. Commands may still be running at that time.
func Serve(in io.Reader, out io.Writer, run func(command []string) ([]string, error)) {
	var mu sync.Mutex // one answer at a time
	queues := map[string]chan func(){}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		number, rest, some := strings.Cut(lines.Text(), " ")
		command, err := unescape(rest, some)
		if err != nil || len(command) < 2 {
			fmt.Fprintln(out, number, "error", "unreadable")
			continue
		}
		queue := queues[command[1]]
		if queue == nil {
			queue = make(chan func(), 16)
			queues[command[1]] = queue
			go func() { // ends with the input; the process ends right after
				for job := range queue {
					job()
				}
			}()
		}
		queue <- func() {
			words, err := run(command)
			answer := strings.TrimSuffix("ok "+escape(words), " ")
			if len(words) == 1 && words[0] == "" {
				answer = "ok "
			}
			if err != nil {
				answer = "error " + escape([]string{err.Error()})
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(out, number, answer)
		}
	}
	for _, queue := range queues {
		close(queue)
	}
}
