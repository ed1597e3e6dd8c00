package cli

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wait for the lines written so far is no trouble for those who write more meanwhile, such as the logger.
func TestFlushWhileLinesAreQueued(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func(before *os.File) { os.Stderr = before }(os.Stderr)
	os.Stderr = write
	seen := make(chan int)
	go func() { // ends with the pipe
		n, buffer := 0, make([]byte, 1<<16)
		for {
			some, err := read.Read(buffer)
			for _, b := range buffer[:some] {
				if b == '!' {
					n++
				}
			}
			if err != nil {
				seen <- n
				return
			}
		}
	}()
	w := &lineWriter{}
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the test
		defer close(ended)
		for {
			select {
			case <-stopped:
				return
			default:
				w.queue("other\n")
			}
		}
	}()
	const flushes = 20_000
	for range flushes {
		w.queue("\n")
		w.flush()
	}
	close(stopped)
	<-ended
	w.flush()
	w.queue("own!\n")
	w.flush()
	close(w.lines)
	require.NoError(t, write.Close())
	require.Equal(t, 1, <-seen)
	require.NoError(t, read.Close())
}
