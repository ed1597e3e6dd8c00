package recipes_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zkcompat"
)

// unusable has the types whose zero value is of no use: New makes them, or a client does.
var unusable = []any{
	&recipes.Client{}, &recipes.Lease{},
	&mutex.InterProcessMutex{}, &latch.LeaderLatch{}, &selector.LeaderSelector{}, &rwlock.InterProcessReadWriteLock{}, &rwlock.Lock{},
	&semaphore.InterProcessSemaphore{}, &semaphore.InterProcessSemaphoreMutex{}, &multilock.InterProcessMultiLock{}, &multilock.Lease{},
	&once.Once{}, &group.Group{}, &spread.Spread{}, &revoke.Revoker{}, &zkcompat.Lock{},
}

// plain has the types whose fields are exported.
var plain = []any{
	&recipes.Health{}, &recipes.Participant{}, &recipes.RetryPolicy{},
	&recipes.OpError{}, &recipes.WaitError{}, &recipes.PanicError{},
	&recipes.Trace{}, &recipes.AcquireStart{}, &recipes.AcquireEnd{}, &recipes.LeaseEnd{}, &recipes.StateChange{},
	&mutex.Cohort{}, &latch.Listener{}, &group.Member{}, &inspect.Queue{}, &inspect.Contender{},
	&once.Record{}, &once.DoneError{}, &once.SupersededError{}, &once.RunningError{},
}

// zeroAnswers has the results of the methods that a zero value can answer. Each other method says that the value is a zero value.
var zeroAnswers = map[string]string{
	"recipes.Lease.Release":                       "lease: release: not held",
	"latch.LeaderLatch.HasLeadership":             "false",
	"latch.LeaderLatch.Leadership":                "lease(nil) false",
	"selector.LeaderSelector.HasLeadership":       "false",
	"rwlock.InterProcessReadWriteLock.ReadLock":   "recipe(nil)",
	"rwlock.InterProcessReadWriteLock.WriteLock":  "recipe(nil)",
	"multilock.Lease.Leases":                      "[]",
	"multilock.Lease.Release":                     "multilock: release: not held",
	"revoke.Revoker.AttemptRevoke":                "revoke: attempt /a: the client is nil",
	"selector.LeaderSelector.InterruptLeadership": "",
	"spread.Spread.Drain":                         "spread: drain: not started",
	"spread.Spread.Close":                         "<nil>",
	"zkcompat.Lock.Lock":                          "mutex: new: the client is nil",
	"zkcompat.Lock.LockWithData":                  "mutex: new: the client is nil",
	"zkcompat.Lock.Unlock":                        "zkcompat: unlock: zk: not locked",
	"zkcompat.Lock.Lost":                          "<nil>",
}

// makers has the texts of the types that no New makes.
var makers = map[string]string{
	"recipes.Client": "the client is a zero value; use recipes.Connect",
	"recipes.Lease":  "zero value; use a lease that Acquire returned",
}

// A method of a zero value returns an error that names the function to use instead, or panics with it if it has no error to return.
func TestZeroValues(t *testing.T) {
	for _, value := range unusable {
		for name, call := range callsOf(value, useful) {
			t.Run(name, func(t *testing.T) {
				dot := strings.LastIndex(name, ".")
				typeName, method := name[:dot], name[dot+1:]
				results, panicked := call()
				if want, ok := zeroAnswers[name]; ok {
					require.NoError(t, panicked)
					require.Equal(t, want, results)
					return
				}
				if slices.Contains([]string{"String", "LogValue", "Format"}, method) {
					require.NoError(t, panicked)
					require.NotEmpty(t, results)
					return
				}
				if panicked != nil {
					results = panicked.Error()
					require.ErrorIs(t, panicked, recipes.ErrInvalidArgument)
				}
				want, ok := makers[typeName]
				if !ok {
					pkg, _, _ := strings.Cut(typeName, ".")
					want = "zero value; use " + pkg + ".New"
				}
				require.Regexp(t, "^[a-z]+: [a-z A-Z]+: "+want+"$", results)
			})
		}
	}
}

// No method of any zero value dereferences nil, whatever the arguments.
func TestMethodsOfZeroValuesEnd(t *testing.T) {
	for _, value := range slices.Concat(unusable, plain) {
		for _, argument := range []func(reflect.Type) reflect.Value{zero, useful} {
			for name, call := range callsOf(value, argument) {
				_, panicked := call()
				var runtimeError runtime.Error
				require.NotErrorAs(t, panicked, &runtimeError, name)
			}
		}
	}
}

// The lists above have every exported struct. Package zktest is left out: its servers are for tests, which fail at a nil dereference as well.
func TestZeroValuesOfAllTypes(t *testing.T) {
	var exported, listed []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"internal", "zktest", "testdata"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				if _, isStruct := spec.Type.(*ast.StructType); isStruct {
					exported = append(exported, file.Name.Name+"."+spec.Name.Name)
				}
			}
			return true
		})
		return nil
	}))
	for _, value := range slices.Concat(unusable, plain) {
		listed = append(listed, reflect.TypeOf(value).Elem().String())
	}
	require.ElementsMatch(t, exported, listed)
}

// callsOf returns a call of each exported method of a pointer, by package, type and method. A call returns the text of the results, which
// is that of the error if the method returned one.
func callsOf(pointer any, argument func(reflect.Type) reflect.Value) map[string]func() (results string, panicked error) {
	calls := make(map[string]func() (string, error))
	for i := range reflect.TypeOf(pointer).NumMethod() {
		value := reflect.New(reflect.TypeOf(pointer).Elem()) // for this call alone
		method := value.Method(i)
		calls[value.Type().Elem().String()+"."+value.Type().Method(i).Name] = func() (results string, panicked error) {
			var written strings.Builder // by Format
			arguments := argumentsOf(method, &written, argument)
			defer func() {
				switch v := recover().(type) {
				case nil:
				case error:
					panicked = v
				default:
					panicked = &recipes.PanicError{Value: v}
				}
			}()
			call := method.Call
			if method.Type().IsVariadic() {
				call = method.CallSlice
			}
			var texts []string
			for _, result := range call(arguments) {
				if err, ok := reflect.TypeAssert[error](result); ok {
					return err.Error(), nil
				}
				texts = append(texts, fmt.Sprint(result.Interface()))
			}
			return written.String() + strings.Join(texts, " "), nil
		}
	}
	return calls
}

// argumentsOf returns the arguments of a call of a method. A method Format writes to written.
func argumentsOf(method reflect.Value, written io.Writer, argument func(reflect.Type) reflect.Value) (all []reflect.Value) {
	for i := range method.Type().NumIn() {
		parameter := method.Type().In(i)
		if parameter == reflect.TypeFor[fmt.State]() {
			all = append(all, reflect.ValueOf(state{written}))
		} else {
			all = append(all, argument(parameter))
		}
	}
	return all
}

// state is the fmt.State of a call of Format.
type state struct{ io.Writer }

func (state) Width() (int, bool)     { return 0, false }
func (state) Precision() (int, bool) { return 0, false }
func (state) Flag(int) bool          { return false }

// zero returns the zero value of a parameter's type, and a context for a context.
func zero(parameter reflect.Type) reflect.Value {
	if parameter == reflect.TypeFor[context.Context]() {
		return reflect.ValueOf(context.Background())
	}
	return reflect.Zero(parameter)
}

// useful returns an argument that a method accepts. A function must not be called.
func useful(parameter reflect.Type) reflect.Value {
	switch {
	case parameter == reflect.TypeFor[spread.Election]():
		return reflect.ValueOf(&latch.LeaderLatch{})
	case parameter.Kind() == reflect.Func:
		return reflect.MakeFunc(parameter, func([]reflect.Value) []reflect.Value { panic("called") })
	case parameter.Kind() == reflect.String:
		return reflect.ValueOf("/a").Convert(parameter)
	case parameter.Kind() == reflect.Int || parameter.Kind() == reflect.Int64:
		return reflect.ValueOf(1).Convert(parameter)
	default:
		return zero(parameter)
	}
}
