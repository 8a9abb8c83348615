// Package misuse calls the exported functions and methods of a package with arguments that nobody means: zero values, nil,
// negative and enormous numbers.
package misuse

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// Package says how to call what the package in the current directory exports.
type Package struct {
	Funcs []any             // its functions, instantiated
	Makes []func() any      // each makes a value of a type, anew for every call; the methods of the package's types are called
	Skip  map[string]string // functions, methods and types that are not called, and why
	Panic map[string]string // with what a function panics, as its documentation says
	NoNil bool              // the documentation says that methods of nil panic
}

// most is how often a function is called, with arguments drawn at random if there are more combinations.
const most = 80

// Call fails the test for every function and method that panics or does not return, and for those that p does not have.
func (p *Package) Call(t *testing.T) {
	called, names := map[string]bool{}, exported(t)
	call := func(name string, f reflect.Value) {
		called[name] = true
		if p.Skip[name] == "" && slices.Contains(names, name) { // else a method of an embedded type
			p.call(t, name, f)
		}
	}
	path := ""
	for _, f := range p.Funcs {
		v := reflect.ValueOf(f)
		name, _, _ := strings.Cut(runtime.FuncForPC(v.Pointer()).Name(), "[")
		dot := strings.LastIndex(name, ".")
		path = name[:dot]
		call(name[dot+1:], v)
	}
	for _, value := range p.Makes {
		typ := reflect.TypeOf(value())
		if named(typ).PkgPath() != path {
			continue
		}
		for m := range typ.NumMethod() {
			call(nameOf(typ)+"."+typ.Method(m).Name, typ.Method(m).Func)
		}
	}
	for _, name := range names {
		typ, _, _ := strings.Cut(name, ".")
		if !called[name] && p.Skip[name] == "" && p.Skip[typ] == "" {
			t.Errorf("%s is not called", name)
		}
	}
}

// call calls a function, whose first parameter is the receiver if it is a method.
func (p *Package) call(t *testing.T, name string, f reflect.Value) {
	random, combinations := rand.New(rand.NewPCG(1, 2)), 1
	var params [][]func() reflect.Value
	for in := range f.Type().Ins() {
		values := p.values(in)
		if receiver := params == nil && strings.Contains(name, "."); receiver && in.Kind() == reflect.Pointer && (p.NoNil || in.Implements(reflect.TypeFor[error]())) {
			values = values[1:] // an error that is nil has no methods
		}
		params = append(params, values)
		combinations = min(combinations*len(values), most+1)
	}
	seen := map[string]bool{}
	for n := range min(combinations, most) {
		args := make([]reflect.Value, len(params))
		for i, values := range params {
			at := random.IntN(len(values))
			if combinations <= most {
				at, n = n%len(values), n/len(values)
			}
			args[i] = values[at]()
		}
		text := describe(args)
		panicked := make(chan string, 1)
		go func() {
			defer func() {
				if v := recover(); v != nil {
					panicked <- fmt.Sprintf("%v\n%s", v, debug.Stack())
				} else {
					close(panicked)
				}
			}()
			if f.Type().IsVariadic() {
				use(f.CallSlice(args))
			} else {
				use(f.Call(args))
			}
		}()
		select {
		case why := <-panicked:
			if first, _, _ := strings.Cut(why, "\n"); why != "" && !seen[first] && (p.Panic[name] == "" || !strings.Contains(first, p.Panic[name])) {
				seen[first] = true
				t.Errorf("%s(%s) panics: %s", name, text, why)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s(%s) has not returned after 20 s", name, text)
		}
	}
}

// use ranges over results that are iterators, and closes those that can be closed.
func use(results []reflect.Value) {
	for _, r := range results {
		if c, ok := r.Interface().(io.Closer); ok && !r.IsZero() {
			c.Close()
		}
		if r.Kind() == reflect.Func && !r.IsNil() && (r.Type().CanSeq() || r.Type().CanSeq2()) {
			n := 0
			if r.Type().CanSeq() {
				for range r.Seq() {
					if n++; n == 3 {
						break
					}
				}
			} else {
				for range r.Seq2() {
					if n++; n == 3 {
						break
					}
				}
			}
		}
	}
}

// values returns functions that make the arguments of a type.
func (p *Package) values(typ reflect.Type) (all []func() reflect.Value) {
	add := func(f func(v reflect.Value)) {
		all = append(all, func() reflect.Value {
			v := reflect.New(typ).Elem()
			f(v)
			return v
		})
	}
	add(func(reflect.Value) {})
	for _, value := range p.Makes {
		if reflect.TypeOf(value()).AssignableTo(typ) {
			add(func(v reflect.Value) { v.Set(reflect.ValueOf(value())) })
		}
	}
	switch typ.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		great := int64(1)<<(typ.Bits()-1) - 1
		for _, n := range []int64{-1, 1, great, great/8 + 1, -great - 1} {
			add(func(v reflect.Value) { v.SetInt(n) })
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		add(func(v reflect.Value) { v.SetUint(1<<(typ.Bits()-1) + 1) })
	case reflect.String:
		add(func(v reflect.Value) { v.SetString("x") })
	case reflect.Pointer:
		add(func(v reflect.Value) { v.Set(reflect.New(typ.Elem())) })
	case reflect.Slice:
		add(func(v reflect.Value) { v.Set(reflect.MakeSlice(typ, 0, 0)) })
		for _, elem := range p.values(typ.Elem()) {
			add(func(v reflect.Value) { v.Set(reflect.Append(v, elem())) })
		}
	case reflect.Struct:
		for i := range typ.NumField() {
			if !typ.Field(i).IsExported() {
				continue
			}
			for _, field := range p.values(typ.Field(i).Type)[1:] {
				add(func(v reflect.Value) { v.Field(i).Set(field()) })
			}
		}
	case reflect.Func:
		add(func(v reflect.Value) {
			v.Set(reflect.MakeFunc(typ, func([]reflect.Value) (out []reflect.Value) {
				for i := range typ.NumOut() {
					if typ.Out(i) == reflect.TypeFor[error]() { // ends loops of any length
						out = append(out, reflect.ValueOf(errors.New("misuse")))
					} else {
						out = append(out, reflect.Zero(typ.Out(i)))
					}
				}
				return out
			}))
		})
	}
	return all
}

func describe(args []reflect.Value) string {
	var text []string
	for _, a := range args {
		switch {
		case a.Kind() == reflect.Func && !a.IsNil():
			text = append(text, "a function")
		case a.Kind() == reflect.Pointer && !a.IsNil():
			text = append(text, "&"+nameOf(a.Type())+"{…}")
		default:
			text = append(text, fmt.Sprintf("%#v", a))
		}
	}
	return strings.Join(text, ", ")
}

// named returns a type, or what it points to.
func named(typ reflect.Type) reflect.Type {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem()
	}
	return typ
}

// nameOf returns the name of a type, or of what it points to, without its package and type arguments.
func nameOf(typ reflect.Type) string {
	name, _, _ := strings.Cut(named(typ).Name(), "[")
	return name
}

// exported returns what the package in the current directory exports: F for a function, T.M for a method of an exported
// type.
func exported(t *testing.T) (names []string) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				typ := f.Recv.List[0].Type
				for id := (*ast.Ident)(nil); id == nil; {
					switch x := typ.(type) {
					case *ast.StarExpr:
						typ = x.X
					case *ast.IndexExpr:
						typ = x.X
					case *ast.Ident:
						id = x
						name = id.Name + "." + name
					default:
						t.Fatalf("%s: a receiver of type %T", name, x)
					}
				}
			}
			if ast.IsExported(name) {
				names = append(names, name)
			}
		}
	}
	return names
}
