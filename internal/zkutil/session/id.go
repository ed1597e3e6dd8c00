package session

import (
	"os"
	"strconv"
)

// defaultID is what contenders without data of their own write into their znodes. It is never empty, because
// Curator's participants could not read that.
func defaultID() []byte {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return []byte(host + "/" + strconv.Itoa(os.Getpid()))
}

// ID is what contenders without data of their own write into their znodes.
func (s *Session) ID() []byte { return s.cfg.ID }
