package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/top"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// shownQueue is a queue in JSON.
type shownQueue struct {
	Path       string           `json:"path"`
	Kind       string           `json:"kind"`
	Contenders []shownContender `json:"contenders"`
	Last       *shownRecord     `json:"last,omitempty"`
}

type shownContender struct {
	Position int       `json:"position"`
	ID       string    `json:"id"`
	Path     string    `json:"path"`
	Token    int64     `json:"token"`
	Since    time.Time `json:"since"`
	Holds    bool      `json:"holds"`
	Revoked  bool      `json:"revoked"`

	NotEphemeral bool `json:"not_ephemeral,omitempty"`
}

// shownRecord is the record of a Once in JSON.
type shownRecord struct {
	Occurrence string    `json:"occurrence"`
	ID         string    `json:"id"`
	Token      int64     `json:"token"`
	Finished   bool      `json:"finished"`
	Runs       int       `json:"runs"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	Failure    string    `json:"failure,omitempty"`
}

// listFlags are those of the command ls.
type listFlags struct {
	*globals

	isRecursive bool
	isSummary   bool
	format      string
	adminPort   int
}

func newList(g *globals) *cobra.Command {
	f := listFlags{globals: g, format: "table", adminPort: defaultAdminPort}
	c := &cobra.Command{
		Use:   "ls [flags] PATH",
		Short: "Show who holds a lock and who waits for it",
		Long: `Shows who holds the lock at PATH, and who waits for it, in the order of the queue. AGE is the time since the
contender came. A lock that nobody wants is free, also if its path does not exist, which ls says. For a path of zkr once
or of package once, ls also shows the latest occurrence, and for the path of a group its members; -r shows neither. On a
terminal, lines are cut at its width. -o wide has the znodes, which kick takes, and the addresses of the clients as well.`,
		Args: one("PATH"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.format != "table" && f.format != "wide" && f.format != "json" {
				return exit.Errorf(exit.Usage, "-o: %q is neither table, wide nor json", f.format)
			}
			if err := checkPath(args[0]); err != nil {
				return err
			}
			return g.asObserver(listTime(f.isRecursive), func(ctx context.Context, client *recipes.Client) error {
				return f.list(ctx, c.OutOrStdout(), client, args[0])
			})
		},
	}
	flags := c.Flags()
	flags.BoolVarP(&f.isRecursive, "recursive", "r", false, "all locks and elections at PATH and below")
	flags.BoolVar(&f.isSummary, "summary", false, "a line for each lock, with the number of waiters")
	flags.StringVarP(&f.format, "output", "o", f.format, "table, wide or json")
	flags.IntVar(&f.adminPort, "admin-port", f.adminPort, "for -o wide: port of the servers' admin servers, asked where cons is not allowed")
	return c
}

func (f *listFlags) list(ctx context.Context, out io.Writer, client *recipes.Client, path string) error {
	queues, err := readQueues(ctx, client, path, f.isRecursive)
	if err != nil {
		return err
	}
	full := max(f.prefix()+strings.TrimSuffix(path, "/"), "/")
	var last once.Record
	if !f.isRecursive {
		if queues, last, err = readMore(ctx, client, path, full, queues); err != nil {
			return err
		}
	}
	isUsed := len(queues) > 0 && len(queues[0].Contenders) > 0
	switch {
	case f.format == "json" && f.isSummary:
		return printJSON(out, top.Summarize(queues, time.Now()))
	case f.format == "json":
		return f.printQueues(out, queues, last)
	case isUsed && f.isSummary:
		return screen.Print(out, top.Table(top.Summarize(queues, time.Now())), f.format != "wide")
	case isUsed:
		var addresses map[string]string
		if f.format == "wide" {
			if addresses, err = f.addresses(ctx, client, queues); err != nil {
				return err
			}
		}
		if err = f.printTable(out, func(table io.Writer) { f.writeContenders(table, queues, addresses) }); err != nil || last.Occurrence == "" {
			return err
		}
		return screen.Print(out, latestRun(last)+"\n", f.format != "wide")
	}
	isThere, err := exists(ctx, client, full)
	if err != nil {
		return err
	}
	text := path + " is free"
	switch {
	case !isThere:
		text = path + ": no such path (a free lock may have none)"
	case f.isRecursive:
		text = "no locks below " + path
	case last.Occurrence != "":
		text += "; " + latestRun(last)
	default:
		if n := countBelow(ctx, client, path); n > 0 {
			text = fmt.Sprintf("%s: no lock here, %d below: use -r", path, n)
		}
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func latestRun(last once.Record) string { return "latest run: " + last.String() }

// The kinds of paths that are no queues, which package inspect does not know.
const (
	kindOnce  = "once"
	kindGroup = "group"
)

// readMore looks for what a path may have besides a queue: the record of a Once, which makes its queue one of kindOnce, or the members of a
// group, as a queue of kindGroup. A record that can't be read is reported.
func readMore(ctx context.Context, client *recipes.Client, path, full string, queues []inspect.Queue) ([]inspect.Queue, once.Record, error) {
	if len(queues) > 0 && queues[0].Kind != inspect.KindMutex {
		return queues, once.Record{}, nil
	}
	last, err := lastRecord(ctx, client, path)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, last, err
	case err != nil:
		say("%v", inWords(err))
	case last.Occurrence != "" && len(queues) == 0:
		return []inspect.Queue{{Path: path, Kind: kindOnce}}, last, nil
	case last.Occurrence != "":
		queues[0].Kind = kindOnce
	}
	if len(queues) > 0 {
		return queues, last, nil
	}
	members, err := await.Call(ctx, func() ([]inspect.Contender, error) { return readMembers(client.Conn(), full) })
	if err != nil || len(members) == 0 {
		return nil, last, err
	}
	return []inspect.Queue{{Path: path, Kind: kindGroup, Contenders: members}}, last, nil
}

// lastRecord returns the record of the Once at a path, the zero Record if there is none.
func lastRecord(ctx context.Context, client *recipes.Client, path string) (once.Record, error) {
	o, err := once.New(client, path)
	if err != nil { // the name of a contender is in the path
		return once.Record{}, nil //nolint:nilerr // no Once can have such a path
	}
	last, err := o.Last(ctx)
	if errors.Is(err, once.ErrRecord) { // the znode is another program's
		return once.Record{}, nil
	}
	return last, err
}

// readMembers returns the children of a path that belong to sessions, and are no contenders. It gives up after some children that are not
// members: a path may have thousands of locks below.
func readMembers(conn *zk.Conn, full string) (members []inspect.Contender, err error) {
	names, _, err := conn.Children(full)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	slices.Sort(names)
	for some := range slices.Chunk(names, 100) {
		stats, failures := make([]*zk.Stat, len(some)), make([]error, len(some))
		var reads sync.WaitGroup
		for i, name := range some {
			reads.Go(func() { // ends with its read; joined below
				_, stats[i], failures[i] = conn.Exists(zkutil.Join(full, name))
			})
		}
		reads.Wait()
		for i, name := range some {
			if failures[i] != nil {
				return nil, failures[i]
			}
			if zkutil.IsSession(stats[i].EphemeralOwner) && !inspect.IsContender(name) {
				members = append(members, inspect.Contender{
					Position: len(members) + 1, ID: name, Path: zkutil.Join(full, name), Token: stats[i].Czxid,
					Since: time.UnixMilli(stats[i].Ctime), Holds: true,
				})
			}
		}
		if len(members) == 0 {
			return nil, nil
		}
	}
	return members, nil
}

// countBelow counts the locks below a path that can be read within a few seconds.
func countBelow(ctx context.Context, client *recipes.Client, path string) (n int) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, err := range inspect.Walk(ctx, client, path) {
		if err == nil {
			n++
		}
	}
	return n
}

// readQueues returns the queues with contenders. A path that does not exist has none, because the server removes the
// container of an unused lock. Directories without read permission are reported.
func readQueues(ctx context.Context, client *recipes.Client, path string, isRecursive bool) ([]inspect.Queue, error) {
	if !isRecursive {
		queue, err := inspect.Read(ctx, client, path)
		switch {
		case isMissing(err) || err == nil && len(queue.Contenders) == 0:
			return nil, nil
		case err != nil:
			return nil, err
		default:
			return []inspect.Queue{queue}, nil
		}
	}
	var queues []inspect.Queue
	isRefused := false
	for queue, err := range inspect.Walk(ctx, client, path) {
		switch {
		case err == nil:
			queues = append(queues, queue)
		case isMissing(err):
		case ctx.Err() != nil:
			return nil, err
		case queue.Path == path:
			return nil, err
		default:
			isRefused = true
			say("%v", inWords(err))
		}
	}
	if isRefused && len(queues) == 0 {
		return nil, exit.Silent(exit.Unavailable) // said above
	}
	return queues, nil
}

// addresses returns the client's address by the path of a contender.
func (f *listFlags) addresses(ctx context.Context, client *recipes.Client, queues []inspect.Queue) (map[string]string, error) {
	var all []inspect.Contender
	for _, queue := range queues {
		all = append(all, queue.Contenders...)
	}
	found, table, err := f.addressesOf(ctx, client, all, f.adminPort)
	if err != nil {
		return nil, err
	}
	for _, refusal := range table.Refusals() {
		say("%s", refusal)
	}
	addresses := map[string]string{}
	for i, address := range found {
		addresses[all[i].Path] = address
	}
	return addresses, nil
}

func (f *listFlags) printQueues(out io.Writer, queues []inspect.Queue, last once.Record) error {
	shown := make([]shownQueue, len(queues))
	for i, queue := range queues {
		shown[i] = shownQueue{Path: queue.Path, Kind: queue.Kind, Contenders: make([]shownContender, len(queue.Contenders))}
		if queue.Kind == kindOnce {
			last.StartedAt, last.FinishedAt = last.StartedAt.UTC(), last.FinishedAt.UTC()
			shown[i].Last = (*shownRecord)(&last)
		}
		for k, c := range queue.Contenders {
			c.Path, c.Since = f.shown(c.Path), c.Since.UTC()
			shown[i].Contenders[k] = shownContender(c)
		}
	}
	return printJSON(out, shown)
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// printTable aligns the columns that write writes, and fits the lines to a terminal.
func (f *listFlags) printTable(out io.Writer, write func(table io.Writer)) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	write(table)
	if err := table.Flush(); err != nil {
		return err
	}
	return screen.Print(out, text.String(), f.format != "wide")
}

func (f *listFlags) writeContenders(table io.Writer, queues []inspect.Queue, addresses map[string]string) {
	isWide, now := f.format == "wide", time.Now()
	fmt.Fprint(table, "PATH\tKIND\tPOS\tSTATE\tAGE\tID\tTOKEN")
	if isWide {
		fmt.Fprint(table, "\tCLIENT\tSINCE\tZNODE")
	}
	fmt.Fprintln(table)
	for _, queue := range queues {
		for _, c := range queue.Contenders {
			state := stateOf(c)
			if queue.Kind == kindGroup {
				state = "member"
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%d", screen.Field(queue.Path), queue.Kind, c.Position, state, age(c.Since, now), screen.Field(c.ID), c.Token)
			if isWide {
				address := addresses[c.Path]
				if address == "" {
					address = "-"
				}
				fmt.Fprintf(table, "\t%s\t%s\t%s", address, c.Since.Format(time.RFC3339), screen.Field(f.shown(c.Path)))
			}
			fmt.Fprintln(table)
		}
	}
}

// age is a length of time in at most four characters or so: 7s, 3m, 5h12m, 4d.
func age(since, now time.Time) string {
	d := max(0, now.Sub(since)).Truncate(time.Second)
	switch {
	case since.IsZero():
		return "-"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

func stateOf(c inspect.Contender) string {
	state := "waits"
	if c.Holds {
		state = "holds"
	}
	if c.Revoked {
		state += ",revoked"
	}
	if c.NotEphemeral {
		state += ",not-ephemeral"
	}
	return state
}
