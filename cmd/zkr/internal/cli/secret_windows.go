package cli

import "os"

// checkSecret returns an error if a file does not exist. Like libpq, it does not check the permissions, because the mode of a
// file does not show them on Windows.
func checkSecret(path string) error {
	_, err := os.Stat(path)
	return err
}
