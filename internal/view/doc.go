// Package view converts between slices of any element type and bytes without copying.
package view
