package cgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFolderOf(t *testing.T) {
	const (
		unified   = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid    = "40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		container = "52 40 0:26 /docker/abc /sys/fs/cgroup ro master:1 - cgroup2 cgroup rw\n"
		noMount   = "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	)
	for _, test := range []struct{ cgroups, mounts, want string }{
		{"0::/system.slice/cron.service\n", noMount + unified, "/sys/fs/cgroup/system.slice/cron.service"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"9:pids:/a\n0::/b\n", hybrid, "/sys/fs/cgroup/unified/b"},
		{"0::/docker/abc/x\n", container, "/sys/fs/cgroup/x"},
		{"0::/docker/abc\n", container, "/sys/fs/cgroup"},
		{"0::/docker/other\n", container, ""},
		{"0::/../other\n", unified, ""},
		{"0::/a\n", noMount, ""},
		{"9:pids:/a\n", hybrid, ""},
		{"", unified, ""},
	} {
		require.Equal(t, test.want, folderOf(test.cgroups, test.mounts), "%q in %q", test.cgroups, test.mounts)
	}
}
