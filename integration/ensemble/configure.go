package ensemble

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Configure changes lines of the zoo.cfg of node i, which has to be running; "" removes a line. The server reads the
// file at its next start: Stop or Kill, then StartNode.
func (e *Ensemble) Configure(ctx context.Context, i int, properties map[string]string) error {
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&script, "sed -i '/^%s=/d' %s\n", key, configPath)
		if value := properties[key]; value != "" {
			fmt.Fprintf(&script, "echo '%s=%s' >>%s\n", key, value, configPath)
		}
	}
	_, err := e.Exec(ctx, i, "sh", "-c", script.String())
	return err
}

// RollingRestart restarts the given nodes, or all of them, one after the other. between runs after each node serves
// again; it may be nil.
func (e *Ensemble) RollingRestart(ctx context.Context, between func(node int) error, nodes ...int) error {
	if len(nodes) == 0 {
		for i := range e.Servers() {
			nodes = append(nodes, i)
		}
	}
	for _, i := range nodes {
		if err := e.Stop(ctx, i); err != nil {
			return err
		}
		if err := e.StartNode(ctx, i); err != nil {
			return err
		}
		if err := e.WaitServing(ctx); err != nil {
			return err
		}
		if between == nil {
			continue
		}
		if err := between(i); err != nil {
			return err
		}
	}
	return nil
}
