package ensemble

import (
	"context"
	"fmt"
	"strings"
)

// Isolate cuts node i off from the other nodes, in both directions; clients still reach it. It needs iptables in the
// image. Cutting only one direction (Exec with iptables) is another fault: votes of the node then still arrive at the
// others, which elect it in vain until initLimit is over.
func (e *Ensemble) Isolate(ctx context.Context, i int) error {
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, chain := range []string{"INPUT", "OUTPUT"} {
		for _, end := range []string{"--sport", "--dport"} {
			for _, port := range []int{quorumPort, electionPort} {
				fmt.Fprintf(&script, "iptables -A %s -p tcp %s %d -j DROP\n", chain, end, port)
			}
		}
	}
	_, err := e.Exec(ctx, i, "sh", "-c", script.String())
	return err
}

// Mute drops packets from one node to another, but not in the other direction; clients reach both. Heal of the
// receiving node ends it. Both have to be running.
func (e *Ensemble) Mute(ctx context.Context, from, to int) error {
	_, err := e.Exec(ctx, to, "iptables", "-A", "INPUT", "-s", alias(from), "-j", "DROP")
	return err
}

// Heal removes every iptables rule from node i, those made by Exec included.
func (e *Ensemble) Heal(ctx context.Context, i int) error {
	_, err := e.Exec(ctx, i, "iptables", "-F")
	return err
}
