package zkutil

// The faults of a fake, by name.

// set changes the condition of servers; healing an isolated one drops its clients.
func (f *fake) set(to condition, servers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, server := range servers {
		if f.servers[server] == isolated {
			f.dropLocked(server)
		}
		f.servers[server] = to
		delete(f.views, server)
		if to == isolated {
			view := map[string]*fakeNode{}
			for path, n := range f.tree {
				frozen := *n
				view[path] = &frozen
			}
			f.views[server] = view
		}
	}
	f.changed.Broadcast()
}

func (f *fake) dropLocked(server string) {
	for l := range f.lines {
		if l.server == server || server == "" {
			l.close()
		}
	}
}

// drop ends every connection; the sessions live on.
func (f *fake) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked("")
}

// expire ends a session now, as if its time were over.
func (f *fake) expire(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.sessions[id]; ok {
		f.endLocked(s)
	}
}

// put creates or changes a znode behind everybody's back.
func (f *fake) put(path, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zxid++
	if n, ok := f.tree[path]; ok {
		n.data, n.mzxid, n.version = []byte(data), f.zxid, n.version+1
		f.notify(path, eventDataChanged)
		return
	}
	f.tree[path] = &fakeNode{data: []byte(data), czxid: f.zxid, mzxid: f.zxid}
}

// remove deletes a znode behind everybody's back.
func (f *fake) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zxid++
	f.removeLocked(path)
}
