package conformance

import "fmt"

// path returns the path of the tree or a path below.
func (g *generator) path() string {
	if g.rnd.IntN(40) == 0 {
		return "/r"
	}
	return g.below()
}

// below returns mostly one of a few paths, sometimes a sequential path created before, and
// rarely an invalid path. It never returns the tree's own path: a sequence number beside
// the tree would depend on the server's past.
func (g *generator) below() string {
	names := "abc"
	name := func() byte { return names[g.rnd.IntN(len(names))] }
	switch g.pick([]choice{{18, "child"}, {8, "grandchild"}, {2, "deep"}, {8, "made"}, {1, "bad"}}) {
	case "child":
		return fmt.Sprintf("/r/%c", name())
	case "grandchild":
		return fmt.Sprintf("/r/%c/%c", name(), name())
	case "deep":
		return fmt.Sprintf("/r/%c/%c/%c", name(), name(), name())
	case "made":
		return fmt.Sprintf("$%d%s", 1+g.rnd.IntN(4), g.pick([]choice{{5, ""}, {1, "/a"}}))
	}
	return g.pick([]choice{
		{1, "/r/"},
		{1, "/r/a/"},
		{1, "/r//a"},
		{1, "/r/./a"},
		{1, `"r"`},
		{1, `"/r/\x00"`},
		{1, `"/r/a\ue000"`},
		{1, `"/r/\xff"`},
		{1, "/r/ü"},
		{1, "/zookeeper/config"},
	})
}

func (g *generator) version() string {
	return g.pick([]choice{{20, ""}, {5, " v=0"}, {4, " v=1"}, {2, " v=2"}, {1, " v=3"}, {2, " v=-1"}, {1, " v=-2"}})
}

func (g *generator) data() string {
	return g.pick([]choice{{4, ""}, {2, " data=d"}, {2, " data=hello"}, {2, " null"}})
}

func (g *generator) mode(op string) string {
	switch op {
	case "createContainer":
		return g.pick([]choice{{8, ""}, {2, " flags=2"}, {1, " flags=0"}, {1, " flags=3"}, {1, " flags=5"}, {1, " flags=7"}})
	case "createTTL":
		return g.pick([]choice{
			{6, " ttl=100000000"},
			{2, " sequential ttl=100000000"},
			{1, " ttl=0"},
			{1, " ttl=-1"},
			{1, " flags=0 ttl=100000000"},
			{1, " flags=7 ttl=100000000"},
		})
	}
	return g.pick([]choice{
		{12, ""},
		{6, " ephemeral"},
		{6, " sequential"},
		{5, " ephemeral sequential"},
		{2, " container"},
		{1, " flags=5"},
		{1, " flags=6"},
		{1, " flags=7"},
	})
}

func (g *generator) acl() string {
	return g.pick([]choice{
		{70, ""},
		{2, " acl=world:anyone:ra"},
		{2, " acl=world:anyone:cdwa"},
		{2, " acl=world:anyone:a acl=digest:u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=:cdrw"},
		{2, " acl=auth::cdrwa"},
		{1, " acl=auth::cr acl=world:anyone:a acl=world:anyone:a"},
		{1, " acl=ip:0.0.0.0/0:cdrwa"},
		{1, " acl=nonsense:x:r"},
		{1, " noacl"},
		{1, " emptyacl"},
	})
}
