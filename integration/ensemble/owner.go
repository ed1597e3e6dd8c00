package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/client"
)

// ownerLabel marks this package's objects in Docker with the process that created them.
const ownerLabel = "com.github.zkrecipes.owner"

// owner identifies a process while its host is up, by its pid and start time, because pids are reused.
type owner struct {
	host    string
	pid     int
	started string
}

func self() owner {
	host, _ := os.Hostname()
	return owner{host: host, pid: os.Getpid(), started: startTime(os.Getpid())}
}

func (o owner) String() string { return fmt.Sprintf("%s/%d/%s", o.host, o.pid, o.started) }

func parseOwner(label string) (owner, bool) {
	parts := strings.Split(label, "/")
	if len(parts) != 3 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	return owner{host: parts[0], pid: pid, started: parts[2]}, err == nil
}

// gone reports whether the process is known to be dead: it was on this host and does not run.
func (o owner) gone() bool {
	if host, _ := os.Hostname(); host != o.host {
		return false
	}
	process, err := os.FindProcess(o.pid)
	if err != nil {
		return true
	}
	if err := process.Signal(syscall.Signal(0)); err != nil && !errors.Is(err, os.ErrPermission) {
		return true
	}
	return o.started != startTime(o.pid)
}

// startTime returns when the process began, in the kernel's clock ticks, or "" where there is no /proc.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in brackets and may hold spaces; the start time is field 22.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// removeLeftovers removes the containers and networks of dead processes.
func removeLeftovers(ctx context.Context, docker *client.Client) error {
	filters := make(client.Filters).Add("label", ownerLabel)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return fmt.Errorf("ensemble: list leftovers: %w", err)
	}
	var errs []error
	for _, c := range containers.Items {
		if o, ok := parseOwner(c.Labels[ownerLabel]); ok && o.gone() {
			_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			errs = append(errs, ignoreMissing(err))
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: filters})
	if err != nil {
		return fmt.Errorf("ensemble: list leftovers: %w", err)
	}
	for _, n := range networks.Items {
		if o, ok := parseOwner(n.Labels[ownerLabel]); ok && o.gone() {
			_, err := docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, ignoreMissing(err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ensemble: remove leftovers: %w", err)
	}
	return nil
}
