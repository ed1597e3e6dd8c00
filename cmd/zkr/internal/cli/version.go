package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  none,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), versionLine())
			return err
		},
	}
}

// version is set by the linker in a release (.goreleaser.yaml). Otherwise the version is that of the module in the build information.
var version string

// versionLine returns the version, the commit if zkr was built in a clone, and the platform.
func versionLine() string {
	number, revision := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		number = cmp.Or(number, info.Main.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = " " + setting.Value
			}
		}
	}
	return fmt.Sprintf("zkr %s%s %s %s/%s", cmp.Or(number, "(devel)"), revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
