package recipes_test

import (
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// What a recipe returns says what was attempted and where, and unwraps to the cause.
func ExampleOpError() {
	var err error = &recipes.OpError{Op: "mutex: try acquire", Path: "/locks/stock/1", Err: recipes.ErrNotAcquired}

	if errors.Is(err, recipes.ErrNotAcquired) {
		fmt.Println("somebody else has it")
	}
	if op, ok := errors.AsType[*recipes.OpError](err); ok {
		fmt.Println(op.Path)
	}
	fmt.Println(err)
	// Output:
	// somebody else has it
	// /locks/stock/1
	// mutex: try acquire /locks/stock/1: held by another
}
