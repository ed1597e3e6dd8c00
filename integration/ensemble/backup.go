package ensemble

import (
	"context"
	"errors"
	"fmt"
)

// Directories inside a node.
const (
	historyDir = dataDir + "/version-2" // transaction logs, snapshots and epochs
	backupDir  = dataDir + "/backup"
	freshDir   = dataDir + "/next"
	// FormerDir holds the directories replaced by Restore and Wipe: 1, 2, ….
	FormerDir = dataDir + "/former"
)

// Backup copies the data directory of each node, inside the node, while the servers run. It replaces an earlier backup.
func (e *Ensemble) Backup(ctx context.Context) error {
	return e.everywhere(ctx, "rm -rf "+backupDir+" && cp -a "+historyDir+" "+backupDir)
}

// Restore kills all nodes, calls whileDown unless it is nil, and starts the nodes with the data of the latest Backup. It does
// not wait for the servers to take clients; see WaitServing.
func (e *Ensemble) Restore(ctx context.Context, whileDown func(context.Context) error) error {
	return e.replace(ctx, "cp -a "+backupDir+" "+freshDir, whileDown)
}

// Wipe kills all nodes, and starts them without any data. Like Restore, it does not wait.
func (e *Ensemble) Wipe(ctx context.Context) error {
	return e.replace(ctx, "mkdir "+freshDir, nil)
}

// replace restarts all nodes with data directories created by a command. The servers run until the new directories are in
// place, because no command runs inside a stopped node. Until a server is killed, it writes to its open files, which are in
// the former directory.
func (e *Ensemble) replace(ctx context.Context, makeFresh string, whileDown func(context.Context) error) error {
	if err := e.everywhere(ctx, "rm -rf "+freshDir+" && "+makeFresh); err != nil {
		return err
	}
	swap := fmt.Sprintf("mkdir -p %[1]s && mv %[2]s %[1]s/$(($(ls %[1]s | wc -l) + 1)) && mv %[3]s %[2]s", FormerDir, historyDir, freshDir)
	if err := e.everywhere(ctx, swap); err != nil {
		return err
	}
	var errs []error
	for i := range e.nodes {
		errs = append(errs, e.Kill(ctx, i))
	}
	if whileDown != nil {
		errs = append(errs, whileDown(ctx))
	}
	for i := range e.nodes {
		errs = append(errs, e.StartNode(ctx, i))
	}
	return errors.Join(errs...)
}

func (e *Ensemble) everywhere(ctx context.Context, script string) error {
	for i := range e.Servers() {
		if _, err := e.Exec(ctx, i, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}
