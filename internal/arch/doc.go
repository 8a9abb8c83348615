// Package arch tests rules that hold for the whole repository: which package imports
// which, where unsafe and cgo may be, what the documents list. It contains only tests;
// docs/design.md explains the rules.
package arch
