package ensemble

import (
	"context"
	"io"
	"regexp"
	"strings"
)

// Logs returns the output of node i since its creation. Session ids are blacked out.
func (e *Ensemble) Logs(ctx context.Context, i int) (string, error) {
	var output string
	err := e.fault("logs", i, func(n *node) (err error) {
		output, err = n.logs(ctx)
		return err
	})
	return output, err
}

// longHex is what a session id looks like in a server's log; transaction ids are shorter.
var longHex = regexp.MustCompile(`0x[0-9a-f]{13,}`)

func (n *node) logs(ctx context.Context) (string, error) {
	logs, err := n.container.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer logs.Close()
	all, err := io.ReadAll(logs)
	return longHex.ReplaceAllString(string(all), "0x…"), err
}

// logEnd returns the end of the log for the message of a failed start, whose context may be over.
func (n *node) logEnd() string {
	const lines = 15
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	all, err := n.logs(ctx)
	if err != nil {
		return err.Error()
	}
	split := strings.Split(strings.TrimSpace(all), "\n")
	return strings.Join(split[max(0, len(split)-lines):], "\n")
}
