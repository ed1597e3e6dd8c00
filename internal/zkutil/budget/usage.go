package budget

import "slices"

// Usage counts the bytes in use, the directories with contenders, the znodes, and the waiting calls of a session.
type Usage struct{ Used, Directories, Nodes, Waiters int }

// Usage returns the present usage.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	use := Usage{b.used, len(b.directories), len(b.nodes), 0}
	for _, d := range b.directories {
		use.Waiters += d.waiters.Len()
	}
	return use
}

// Nodes returns the paths of the znodes that may exist, and the directories with unanswered creates, whose znodes have no
// name yet. Both are sorted.
func (b *Budget) Nodes() (paths, dirs []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := map[*directory]int{}
	for path, c := range b.nodes {
		paths = append(paths, path)
		known[c.reservation.directory] += c.bytes
	}
	for dir, d := range b.directories {
		if d.bytes-d.saved > known[d] {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(paths)
	slices.Sort(dirs)
	return paths, dirs
}
