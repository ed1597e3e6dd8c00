package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// login has the flags for logins and for the ACL of znodes.
type login struct {
	mechanism string
	file      string
	principal string
	keytab    string
	acl       string
}

func (l *login) define(flags *pflag.FlagSet) {
	flags.StringVar(&l.mechanism, "sasl", os.Getenv("ZKR_SASL"), "log in over SASL: digest or krb5 (ZKR_SASL)")
	flags.StringVar(&l.file, "sasl-file", os.Getenv("ZKR_SASL_FILE"), "with --sasl digest, file with the line user:password (ZKR_SASL_FILE)")
	flags.StringVar(&l.principal, "krb5-principal", os.Getenv("ZKR_KRB5_PRINCIPAL"), "with --krb5-keytab, user@REALM (ZKR_KRB5_PRINCIPAL)")
	flags.StringVar(&l.keytab, "krb5-keytab", os.Getenv("ZKR_KRB5_KEYTAB"), "with --sasl krb5, file with the key (ZKR_KRB5_KEYTAB); without, the cache of kinit is used")
	flags.StringVar(&l.acl, "acl", os.Getenv("ZKR_ACL"), "ACL of new znodes: scheme:id:permissions with commas between, as sasl:ann:cdrwa or auth::cdrwa (ZKR_ACL)")
}

// options returns the options of the client. Its errors are of usage.
func (l *login) options() (options []recipes.Option, err error) {
	mechanism, err := l.sasl()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, recipes.WithSASL(mechanism))
	}
	if l.acl != "" {
		acl, err := parseACL(l.acl)
		if err != nil {
			return nil, exit.Errorf(exit.Usage, "--acl: %w", err)
		}
		options = append(options, recipes.WithACL(acl...))
	}
	return options, nil
}

// sasl returns the mechanism, nil if none is asked for.
func (l *login) sasl() (recipes.SASLMechanism, error) {
	switch l.mechanism {
	case "":
		if l.file != "" || l.keytab != "" || l.principal != "" {
			return nil, exit.Errorf(exit.Usage, "--sasl-file, --krb5-keytab and --krb5-principal need --sasl digest or --sasl krb5")
		}
		return nil, nil //nolint:nilnil // documented
	case "digest":
		return l.digest()
	case "krb5":
		return l.krb5()
	default:
		return nil, exit.Errorf(exit.Usage, "--sasl %q: give digest or krb5", l.mechanism)
	}
}

func (l *login) digest() (recipes.SASLMechanism, error) {
	if l.file == "" {
		return nil, exit.Errorf(exit.Usage, "--sasl digest needs --sasl-file, a file with the line user:password")
	}
	if _, err := readDigest(l.file); err != nil {
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	return digestFile(l.file), nil
}

// digestFile is the mechanism DIGEST-MD5 with the user and the password that a file has at the time of a login.
type digestFile string

func (f digestFile) Begin(ctx context.Context, server string) (recipes.SASLLogin, error) {
	mechanism, err := readDigest(string(f))
	if err != nil {
		return nil, err
	}
	return mechanism.Begin(ctx, server)
}

func readDigest(path string) (recipes.SASLMechanism, error) {
	content, err := readSecret(path)
	if err != nil {
		return nil, fmt.Errorf("--sasl-file: %w", err)
	}
	user, password, ok := bytes.Cut(bytes.TrimRight(content, "\r\n"), []byte(":"))
	if !ok || len(user) == 0 || len(password) == 0 || bytes.ContainsAny(password, "\r\n") { // not shown: it may be a password
		return nil, fmt.Errorf("--sasl-file: %s is not one line user:password", path)
	}
	return recipes.DigestMD5(string(user), string(password)), nil
}

func (l *login) krb5() (recipes.SASLMechanism, error) {
	cfg := saslkrb5.Config{Principal: l.principal, KeytabFile: l.keytab}
	if l.keytab == "" {
		cfg.CacheFile = strings.TrimPrefix(environment("KRB5CCNAME", fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid())), "FILE:")
	} else if err := checkSecret(l.keytab); err != nil {
		return nil, exit.Errorf(exit.Usage, "--krb5-keytab: %w", err)
	}
	mechanism, err := saslkrb5.New(cfg)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--sasl krb5: %w", err)
	}
	return mechanism, nil
}

// readSecret is readText for a file that only its owner may use.
func readSecret(path string) ([]byte, error) {
	if err := checkSecret(path); err != nil {
		return nil, err
	}
	return readText(path)
}

// permissions are the letters of zkCli.
var permissions = map[rune]int32{'c': zk.PermCreate, 'd': zk.PermDelete, 'r': zk.PermRead, 'w': zk.PermWrite, 'a': zk.PermAdmin} //nolint:gochecknoglobals // a constant table

// parseACL reads an ACL like zkCli does. The id may contain colons.
func parseACL(text string) (acl []zk.ACL, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		scheme, rest, ok := strings.Cut(strings.TrimSpace(entry), ":")
		last := strings.LastIndexByte(rest, ':')
		if !ok || last < 0 || scheme == "" {
			return nil, fmt.Errorf("%q is not scheme:id:permissions", entry)
		}
		one := zk.ACL{Scheme: scheme, ID: rest[:last]}
		for _, letter := range rest[last+1:] {
			if permissions[letter] == 0 {
				return nil, fmt.Errorf("%q: permissions are letters of cdrwa", entry)
			}
			one.Perms |= permissions[letter]
		}
		if one.Perms == 0 {
			return nil, fmt.Errorf("%q gives no permission", entry)
		}
		acl = append(acl, one)
	}
	return acl, nil
}
