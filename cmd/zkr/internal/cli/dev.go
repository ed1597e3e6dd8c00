package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func newDev(_ *globals) *cobra.Command {
	listen := "127.0.0.1:2181"
	c := &cobra.Command{
		Use:   "dev [--listen ADDRESS]",
		Short: "Run a ZooKeeper server in memory, for development",
		Long: `Runs a ZooKeeper server in this process until a signal comes: for development and demonstrations, without Docker and
without a JDK. It keeps everything in memory. Never use it in production.`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			host, _, err := net.SplitHostPort(listen)
			if err != nil {
				return exit.Errorf(exit.Usage, "--listen: %w", err)
			}
			ctx, stop := guard.NewSignals().EndWait(context.Background())
			defer stop()
			server, err := zktest.Start(zktest.WithAddress(listen))
			if err != nil {
				return &exit.Error{Code: exit.Machine, Err: err}
			}
			defer func() { _ = server.Close() }() // the process ends
			if isOpen(host) {
				say("every host that can reach this port can read and change all data; use --listen 127.0.0.1:2181 to admit this host only")
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "export ZKR_SERVERS=%s\n", server.Addr()); err != nil {
				return err
			}
			<-ctx.Done()
			return orSignal(ctx, context.Cause(ctx))
		},
	}
	c.Flags().StringVar(&listen, "listen", listen, "address to listen at; port 0 is a free one")
	return c
}

// isOpen reports whether a server that listens at host accepts connections from other hosts.
func isOpen(host string) bool {
	if host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}
