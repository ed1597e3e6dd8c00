package ensemble

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/zkrecipes/zkrecipes/integration/image"
)

// OfficialImage is the image used where it is present or can be pulled.
const OfficialImage = "zookeeper:3.9"

const (
	envImage        = "ZKRECIPES_IMAGE"
	envServers      = "ZKRECIPES_SERVERS"
	envSuite        = "ZK"
	envRyukDisabled = "TESTCONTAINERS_RYUK_DISABLED"
	envHostOverride = "TESTCONTAINERS_HOST_OVERRIDE"
	envImagePrefix  = "TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX"

	loopback = "127.0.0.1"

	// pullSilence ends a pull without progress, because an engine without a network may take minutes to report that.
	pullSilence = 20 * time.Second
)

// engine is the process's connection to Docker, made once at the first start.
type engine struct {
	docker *client.Client
	image  string
	host   string // where published ports are found
}

var sharedEngine struct {
	mu sync.Mutex
	*engine
}

// connect returns the process's engine. The first call prepares the environment, removes leftovers and settles the
// image; a failure is not remembered.
func connect(ctx context.Context) (*engine, error) {
	sharedEngine.mu.Lock()
	defer sharedEngine.mu.Unlock()
	if sharedEngine.engine != nil {
		return sharedEngine.engine, nil
	}
	tclog.SetDefault(tclog.NewNoopLogger())
	if err := prepareEnvironment(ctx); err != nil {
		return nil, err
	}
	tc, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("ensemble: docker: %w", err)
	}
	e := &engine{docker: tc.Client}
	if e.host, err = publishedHost(ctx); err != nil {
		return nil, err
	}
	if err := removeLeftovers(ctx, e.docker); err != nil {
		return nil, err
	}
	if e.image, err = chooseImage(ctx, e.docker); err != nil {
		return nil, err
	}
	sharedEngine.engine = e
	return e, nil
}

// prepareEnvironment sets variables that testcontainers reads once, at its first use, so this package has its own
// client.
func prepareEnvironment(ctx context.Context) error {
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return fmt.Errorf("ensemble: docker: %w", err)
	}
	defer docker.Close()
	info, err := docker.Info(ctx, client.InfoOptions{})
	if err != nil {
		// Not at the default address: testcontainers knows more places to look, and their owner knows the settings.
		return nil
	}
	host, _ := os.Hostname()
	_, err = os.Stat("/.dockerenv")
	inContainer, together := err == nil, strings.HasPrefix(docker.DaemonHost(), "unix://") && info.Info.Name == host
	if _, set := os.LookupEnv(envHostOverride); !set && inContainer && together {
		if err := os.Setenv(envHostOverride, loopback); err != nil {
			return fmt.Errorf("ensemble: %w", err)
		}
	}
	_, ryukSet := os.LookupEnv(envRyukDisabled)
	_, prefixSet := os.LookupEnv(envImagePrefix)
	if !ryukSet && !prefixSet && havePulled(ctx, docker, testcontainers.ReaperDefaultImage) != nil { //nolint:staticcheck // deprecated without a public successor
		if err := os.Setenv(envRyukDisabled, "true"); err != nil {
			return fmt.Errorf("ensemble: %w", err)
		}
	}
	return nil
}

// publishedHost returns the host on which published ports are found. Ports are published on IPv4 alone, so "localhost"
// would not do.
func publishedHost(ctx context.Context) (string, error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return "", fmt.Errorf("ensemble: docker: %w", err)
	}
	defer provider.Close()
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return "", fmt.Errorf("ensemble: docker: %w", err)
	}
	if host == "localhost" {
		host = loopback
	}
	return host, nil
}

// publishOn is the address on which ports are published: this machine only, unless the engine is remote.
func (e *engine) publishOn() netip.Addr {
	if e.host == loopback {
		return netip.MustParseAddr(loopback)
	}
	return netip.IPv4Unspecified()
}

// chooseImage returns the image to run: the requested one, the official one, or the local build.
func chooseImage(ctx context.Context, docker *client.Client) (string, error) {
	if name := os.Getenv(envImage); name != "" {
		return name, nil
	}
	pullErr := errors.New(envSuite + " names a suite")
	if os.Getenv(envSuite) == "" {
		if pullErr = havePulled(ctx, docker, OfficialImage); pullErr == nil {
			return OfficialImage, nil
		}
	}
	tag, err := image.Build(ctx, os.Stderr)
	if err != nil {
		return "", fmt.Errorf("ensemble: no image: %w", errors.Join(pullErr, err))
	}
	return tag, nil
}

// imageOf returns the image of a Debian suite, or the chosen one for "".
func (e *engine) imageOf(ctx context.Context, suite string) (string, error) {
	if suite == "" {
		return e.image, nil
	}
	tag, err := image.BuildSuite(ctx, suite, os.Stderr)
	if err != nil {
		return "", fmt.Errorf("ensemble: no image of %s: %w", suite, err)
	}
	return tag, nil
}

// havePulled returns nil once the engine has the image.
func havePulled(ctx context.Context, docker *client.Client, name string) error {
	if _, err := docker.ImageInspect(ctx, name); err == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(pullSilence, func() { cancel(errors.New("no progress")) })
	defer silence.Stop()
	failed := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("pull %s: %w", name, err)
	}
	pull, err := docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return failed(err)
	}
	defer pull.Close()
	for message, err := range pull.JSONMessages(ctx) {
		if err != nil {
			return failed(err)
		}
		if message.Error != nil {
			return failed(message.Error)
		}
		silence.Reset(pullSilence)
	}
	if _, err := docker.ImageInspect(ctx, name); err != nil {
		return failed(err)
	}
	return nil
}

// ignoreMissing drops the error about the removal of something that does not exist, or is being removed.
func ignoreMissing(err error) error {
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return err
}
