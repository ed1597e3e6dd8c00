package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// shownQueue is a queue in JSON.
type shownQueue struct {
	Path       string           `json:"path"`
	Kind       string           `json:"kind"`
	Contenders []shownContender `json:"contenders"`
}

type shownContender struct {
	Position int       `json:"position"`
	ID       string    `json:"id"`
	Path     string    `json:"path"`
	Token    int64     `json:"token"`
	Since    time.Time `json:"since"`
	Holds    bool      `json:"holds"`
	Revoked  bool      `json:"revoked"`
}

func newList(g *globals) *cobra.Command {
	isRecursive, format := false, "table"
	c := &cobra.Command{
		Use:   "ls [flags] PATH",
		Short: "Show who holds a lock and who waits for it",
		Args:  one("PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return exit.Errorf(exit.Usage, "-o: %q is neither table nor json", format)
			}
			if err := checkPath(args[0]); err != nil {
				return err
			}
			return g.asObserver(func(ctx context.Context, client *recipes.Client) error {
				queues, err := readQueues(ctx, client, args[0], isRecursive)
				if err != nil {
					return err
				}
				if format == "json" {
					return g.printJSON(c.OutOrStdout(), queues)
				}
				return g.printTable(c.OutOrStdout(), queues)
			})
		},
	}
	c.Flags().BoolVarP(&isRecursive, "recursive", "r", false, "all locks and elections at PATH and below")
	c.Flags().StringVarP(&format, "output", "o", format, "table or json")
	return c
}

// asObserver runs fn with a client, until a signal comes. A path that does not exist has a code of its own.
func (g *globals) asObserver(fn func(ctx context.Context, client *recipes.Client) error) error {
	ctx, stop := guard.NewSignals().EndWait(context.Background())
	defer stop()
	client, err := g.connect(ctx, 0)
	if err != nil {
		return orSignal(ctx, err)
	}
	defer closeClient(client)
	err = fn(ctx, client)
	if isMissing(err) {
		err = &exit.Error{Code: exit.Nothing, Err: err}
	}
	return orSignal(ctx, err)
}

func readQueues(ctx context.Context, client *recipes.Client, path string, isRecursive bool) ([]inspect.Queue, error) {
	if !isRecursive {
		queue, err := inspect.Read(ctx, client, path)
		return []inspect.Queue{queue}, err
	}
	var queues []inspect.Queue
	for queue, err := range inspect.Walk(ctx, client, path) {
		if err != nil {
			return nil, err
		}
		queues = append(queues, queue)
	}
	return queues, nil
}

func (g *globals) printJSON(out io.Writer, queues []inspect.Queue) error {
	shown := make([]shownQueue, len(queues))
	for i, queue := range queues {
		shown[i] = shownQueue{queue.Path, queue.Kind, make([]shownContender, len(queue.Contenders))}
		for k, c := range queue.Contenders {
			c.Path, c.Since = g.shown(c.Path), c.Since.UTC()
			shown[i].Contenders[k] = shownContender(c)
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(shown)
}

func (g *globals) printTable(out io.Writer, queues []inspect.Queue) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PATH\tKIND\tPOS\tSTATE\tID\tSINCE\tTOKEN\tZNODE")
	for _, queue := range queues {
		if len(queue.Contenders) == 0 {
			fmt.Fprintf(table, "%s\t%s\t-\tfree\t-\t-\t-\t-\n", queue.Path, queue.Kind)
		}
		for _, c := range queue.Contenders {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", queue.Path, queue.Kind, c.Position, stateOf(c),
				quoted(c.ID), c.Since.Format(time.RFC3339), c.Token, g.shown(c.Path))
		}
	}
	return table.Flush()
}

func stateOf(c inspect.Contender) string {
	state := "waits"
	if c.Holds {
		state = "holds"
	}
	if c.Revoked {
		state += ",revoked"
	}
	return state
}
