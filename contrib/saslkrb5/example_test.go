package saslkrb5_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A mechanism is checked at the call; the KDC is asked at the first connection.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "krb5")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	configuration := filepath.Join(dir, "krb5.conf")
	if err := os.WriteFile(configuration, []byte("[libdefaults]\n default_realm = EXAMPLE.COM\n"), 0o600); err != nil {
		panic(err)
	}

	mechanism, err := saslkrb5.New(saslkrb5.Config{Principal: "ann", Password: "secret", ConfigFile: configuration})
	fmt.Println(mechanism, err)
	_ = recipes.WithSASL(mechanism) // an option of recipes.Connect

	_, err = saslkrb5.New(saslkrb5.Config{Principal: "ann", ConfigFile: configuration})
	fmt.Println(errors.Is(err, recipes.ErrInvalidArgument), err)
	// Output:
	// saslkrb5.Mechanism(ann) <nil>
	// true saslkrb5: invalid argument: give one of Password, KeytabFile and CacheFile
}
