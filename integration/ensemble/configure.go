package ensemble

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Configure changes lines of node i's zoo.cfg, which has to be running; "" removes one. The server reads them when it is
// started the next time: Stop or Kill, and StartNode.
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

// RollingRestart stops each of the nodes in order and starts it again, one after the other, all of them when none is
// given. What between does when a node serves again may be nil.
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
