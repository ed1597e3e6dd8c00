package zkutil

// Access is the right to the private parts of package recipes' types. It is for the
// recipes of this module: a user can neither name it nor make a valid one.
type Access struct{ granted bool }

// RecipeAccess returns a valid Access.
func RecipeAccess() Access { return Access{granted: true} }

// Check panics unless a came from [RecipeAccess].
func (a Access) Check() {
	if !a.granted {
		panic("zkrecipes: for the recipes of this module only")
	}
}
