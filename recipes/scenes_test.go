package recipes_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testkit/scenes"
)

// The warnings in the log of each scene, with their number.
func TestScenesInTheLog(t *testing.T) { scenes.RunLog(t) }
