package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const gremlins = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// mutant is a defect that replaces a part of a source file by a text.
type mutant struct {
	file         string // relative to the root of the module
	pos, end     int    // byte offsets
	text         string // instead of the bytes between pos and end
	line, column int
	key          key
}

// key identifies a mutant by its text, independently of changes elsewhere in the file.
type key struct {
	file, function string
	before, after  string // the line at pos, without indentation; after names what is omitted
	twin           int    // counts mutants of a function with the same lines, from 0
}

// never omits the following statement. The names that the statement uses stay used for the compiler.
const never = "if false { "

func (k key) String() string {
	twin := ""
	if k.twin > 0 {
		twin = fmt.Sprintf(" #%d", k.twin+1)
	}
	return fmt.Sprintf("%s %s%s\n-\t%s\n+\t%s\n", k.file, k.function, twin, k.before, k.after)
}

// replacements has all operators of gremlins: for each type of mutant, the replaced tokens.
func replacements() map[string]map[string]string {
	self := map[string]string{}
	for op := range strings.FieldsSeq("+ & &^ * | / % << >> - ^") {
		self[op+"="] = "="
	}
	return map[string]map[string]string{
		"ARITHMETIC_BASE":         {"+": "-", "*": "/", "/": "*", "%": "*", "-": "+"},
		"CONDITIONALS_BOUNDARY":   {">=": ">", ">": ">=", "<=": "<", "<": "<="},
		"CONDITIONALS_NEGATION":   {"==": "!=", ">=": "<", ">": "<=", "<=": ">", "<": ">=", "!=": "=="},
		"INCREMENT_DECREMENT":     {"--": "++", "++": "--"},
		"INVERT_ASSIGNMENTS":      {"+=": "-=", "*=": "/=", "/=": "*=", "-=": "+="},
		"INVERT_BITWISE":          {"&": "|", "|": "&", "^": "&", "&^": "&", "<<": ">>", ">>": "<<"},
		"INVERT_BWASSIGN":         {"&=": "|=", "|=": "&=", "^=": "&=", "&^=": "&=", "<<=": ">>=", ">>=": "<<="},
		"INVERT_LOGICAL":          {"&&": "||", "||": "&&"},
		"INVERT_LOOPCTRL":         {"break": "continue", "continue": "break"},
		"INVERT_NEGATIVES":        {"-": "+"},
		"REMOVE_SELF_ASSIGNMENTS": self,
	}
}

// position is an entry of the list of gremlins.
type position struct {
	Type         string
	Line, Column int
}

// listGremlins returns what gremlins would change in the packages at and below a directory, by file. The list does not
// depend on coverage, which gremlins measures first, so no test is even compiled.
func listGremlins(ctx context.Context, root, dir string) (map[string][]position, error) {
	temp, err := os.MkdirTemp("", "gremlins")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	out, overlay := filepath.Join(temp, "list"), filepath.Join(temp, "overlay")
	if err := omitTests(filepath.Join(root, dir), overlay); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "go", "run", gremlins, "unleash", "--dry-run", "--silent", "--output", out,
		"--invert-assignments", "--invert-bitwise", "--invert-bwassign", "--invert-logical", "--invert-loopctrl", "--remove-self-assignments", "./"+dir)
	c.Dir = root
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -vet=off -overlay="+overlay)
	if text, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins: %w\n%s", err, text)
	}
	var list struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []position
		}
	}
	text, err := os.ReadFile(out)
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		return nil, fmt.Errorf("list of gremlins: %w", err)
	}
	positions := map[string][]position{}
	for _, f := range list.Files {
		positions[filepath.Join(dir, f.Name)] = f.Mutations
	}
	return positions, nil
}

// omitTests writes an overlay for the go command, in which the packages at and below a directory have no tests.
func omitTests(dir, overlay string) error {
	replace := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			replace[path] = ""
		}
		return err
	})
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	return errors.Join(err, os.WriteFile(overlay, text, 0o600))
}

// listFile returns the mutants of a file: those at the positions of gremlins, and omissions.
func listFile(root, file string, positions []position) ([]mutant, error) {
	src, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	l := &lister{file: file, src: src, set: token.NewFileSet(), twins: map[key]int{}}
	if l.ast, err = parser.ParseFile(l.set, file, src, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	operators, start := replacements(), l.set.File(l.ast.FileStart)
	slices.SortFunc(positions, func(a, b position) int { // gremlins reports them in any order
		return 1000*(a.Line-b.Line) + 10*(a.Column-b.Column) + strings.Compare(a.Type, b.Type)
	})
	for _, p := range positions {
		pos := start.LineStart(p.Line) + token.Pos(p.Column-1)
		op := l.tokenAt(pos)
		if to, ok := operators[p.Type][op]; ok {
			l.add(pos, pos+token.Pos(len(op)), to)
		}
	}
	ast.Inspect(l.ast, l.omit)
	return l.mutants, nil
}

// lister collects the mutants of a file.
type lister struct {
	file    string
	src     []byte
	set     *token.FileSet
	ast     *ast.File
	mutants []mutant
	twins   map[key]int
}

func (l *lister) offset(p token.Pos) int { return l.set.Position(p).Offset }

func (l *lister) tokenAt(pos token.Pos) string {
	var s scanner.Scanner
	rest := l.src[l.offset(pos):]
	s.Init(token.NewFileSet().AddFile("", -1, len(rest)), rest, nil, 0)
	_, t, _ := s.Scan()
	return t.String()
}

// omit adds the omissions in a node: its statements, cases and options.
func (l *lister) omit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		l.omitStatements(n.List)
	case *ast.CaseClause:
		l.omitStatements(n.Body)
	case *ast.CommClause:
		l.omitStatements(n.Body)
	case *ast.IfStmt:
		if n.Else != nil {
			l.add(n.Body.End(), n.Else.End(), "")
		}
	case *ast.CompositeLit:
		for i, e := range n.Elts {
			if _, ok := e.(*ast.KeyValueExpr); ok {
				l.omitElement(n.Elts, i)
			}
		}
	case *ast.CallExpr:
		for i, e := range n.Args {
			if c, ok := e.(*ast.CallExpr); ok && isOption(c.Fun) {
				l.omitElement(n.Args, i)
			}
		}
	}
	return true
}

func isOption(f ast.Expr) bool {
	name := types.ExprString(f)
	return strings.HasPrefix(name[strings.LastIndex(name, ".")+1:], "With")
}

func (l *lister) omitStatements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.CaseClause, *ast.CommClause:
			l.add(s.Pos(), s.End(), "")
			continue
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue // its variables would be missing
			}
		case *ast.DeclStmt, *ast.LabeledStmt, *ast.EmptyStmt, *ast.BlockStmt:
			continue
		}
		l.add(s.Pos(), s.End(), never+string(l.src[l.offset(s.Pos()):l.offset(s.End())])+"\n}")
	}
}

func (l *lister) omitElement(list []ast.Expr, i int) {
	pos, end := list[i].Pos(), list[i].End()
	if i+1 < len(list) {
		end = list[i+1].Pos()
	} else if i > 0 {
		pos = list[i-1].End()
	}
	l.add(pos, end, "")
}

// add adds a mutant, unless one with the same text exists.
func (l *lister) add(from, to token.Pos, text string) {
	at := l.set.Position(from)
	m := mutant{file: l.file, pos: at.Offset, end: l.offset(to), text: text, line: at.Line, column: at.Column}
	if slices.ContainsFunc(l.mutants, func(o mutant) bool { return o.pos == m.pos && o.end == m.end && o.text == m.text }) {
		return
	}
	start := bytes.LastIndexByte(l.src[:m.pos], '\n') + 1
	line, _, _ := bytes.Cut(l.src[start:], []byte("\n"))
	m.key = key{file: l.file, function: l.function(from), before: strings.TrimSpace(string(line))}
	if text == "" || strings.HasPrefix(text, never) {
		omits, _, _ := bytes.Cut(l.src[m.pos:m.end], []byte("\n"))
		m.key.after = "(omitted: " + strings.TrimSpace(string(omits)) + ")"
	} else {
		m.key.after = strings.TrimSpace(string(line[:m.pos-start]) + text + string(line[m.end-start:]))
	}
	same := m.key
	m.key.twin = l.twins[same]
	l.twins[same]++
	l.mutants = append(l.mutants, m)
}

// function returns the name of the function around pos.
func (l *lister) function(pos token.Pos) string {
	for _, d := range l.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok || pos < f.Pos() || pos >= f.End():
		case f.Recv != nil:
			return strings.Trim(types.ExprString(f.Recv.List[0].Type), "*") + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
	return "-"
}

// apply returns the source of the file with the defect.
func (m mutant) apply(root string) ([]byte, error) {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	return slices.Concat(src[:m.pos], []byte(m.text), src[m.end:]), nil
}
