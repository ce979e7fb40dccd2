package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// -- types and values: sections 5 and 9 -----------------------------------------------------------------------------
//
// A value is nil, a bool, a big.Int (also of times and decimals: their digits), a float64, a string, bytes, or a list.

// kind is a type of the schema: its name, what is in its brackets, and the types in it.
type kind struct {
	name  string
	words []string
	inner []kind
}

func kindOf(stored json.RawMessage) kind {
	var text string
	if json.Unmarshal(stored, &text) == nil {
		name, inside, _ := strings.Cut(strings.TrimRight(strings.ReplaceAll(text, "(", "["), ")]"), "[")
		return kind{name: name, words: strings.Split(inside, ", ")}
	}
	var nested map[string]json.RawMessage
	decode(stored, &nested, "a type")
	var parts, member []json.RawMessage
	for name, of := range nested {
		switch name {
		case "dictionary":
			return kindOf(of)
		case "list":
			return kind{name: "list", inner: []kind{kindOf(of)}}
		}
		decode(of, &parts, "a type")
		found := kind{name: name}
		for _, one := range parts {
			if name == "struct" {
				decode(one, &member, "a type")
				one = member[1]
			}
			found.inner = append(found.inner, kindOf(one))
			if name == "fixed_size_list" {
				return kind{name: "list", inner: found.inner}
			}
		}
		return found
	}
	return kind{}
}

// widths are the bytes of numbers in keys; those of signed ones are negative.
var widths = map[string]int{
	"int8": -1, "int16": -2, "int32": -4, "int64": -8, "date32": -4, "time32": -4, "time64": -8, "timestamp": -8,
	"decimal128": -16, "decimal256": -32, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float": 4, "double": 8,
	"halffloat": 2,
}

// read returns a value of a data file as one of its field: Parquet has no seconds, and JSON is bytes there.
func (k kind) read(value any) any {
	switch stored := value.(type) {
	case *big.Int:
		if (k.name == "timestamp" || k.name == "time32") && k.words[0] == "s" {
			return new(big.Int).Div(stored, big.NewInt(1000))
		}
	case []byte:
		if k.name == "json" || k.name == "string" {
			return string(stored)
		}
	case []any:
		read := make([]any, len(stored))
		for i, one := range stored {
			read[i] = k.member(i).read(one)
		}
		return read
	}
	return value
}

// member returns the type of an item of a list, of the pair of a map, or of a member of a struct or a pair.
func (k kind) member(at int) kind {
	switch k.name {
	case "list":
		return k.inner[0]
	case "map":
		return kind{name: "pair", inner: k.inner}
	}
	return k.inner[at]
}

// encoded returns the encoding of a value of a key field (9).
func (k kind) encoded(value any) []byte {
	switch value := value.(type) {
	case string:
		return k.encoded([]byte(value))
	case []byte:
		if k.name == "fixed_size_binary" || k.name == "uuid" {
			return value
		}
		return append(bytes.ReplaceAll(value, []byte{0}, []byte{0, 255}), 0, 1)
	case bool:
		return []byte{map[bool]byte{true: 1}[value]}
	case float64:
		bits := k.bits(value)
		if bits[0]&0x80 == 0 {
			bits[0] |= 0x80
			return bits
		}
		for i := range bits {
			bits[i] = ^bits[i]
		}
		return bits
	case *big.Int:
		width, shifted := widths[k.name], value
		if width < 0 {
			width = -width
			shifted = new(big.Int).Add(value, new(big.Int).Lsh(big.NewInt(1), uint(8*width-1)))
		}
		return shifted.FillBytes(make([]byte, width))
	}
	fail(damaged, "a key without a value")
	return nil
}

// bits returns the bits of a float in the width of its type, big-endian.
func (k kind) bits(value float64) []byte {
	bits, width := math.Float64bits(value), 8
	if k.name == "float" {
		bits, width = uint64(math.Float32bits(float32(value))), 4
	}
	return new(big.Int).SetUint64(bits).FillBytes(make([]byte, width))
}

// shown returns a value in the form of section 13.
func (k kind) shown(value any) any {
	switch value := value.(type) {
	case *big.Int:
		return value.String()
	case float64:
		if math.IsNaN(value) {
			return "nan"
		}
		if k.name == "halffloat" {
			k.name = "float"
		}
		return hex.EncodeToString(k.bits(value))
	case []byte:
		return hex.EncodeToString(value)
	case []any:
		shown := make([]any, len(value))
		for i, one := range value {
			shown[i] = k.member(i).shown(one)
		}
		return shown
	}
	return value
}

// valueOf returns the value at a position of an Arrow array; a struct by names, or as the list of its members.
func valueOf(column arrow.Array, at int, named bool) any {
	if column.IsNull(at) {
		return nil
	}
	items := func(values arrow.Array, from, to int64) any {
		found := []any{}
		for i := from; i < to; i++ {
			found = append(found, valueOf(values, int(i), named))
		}
		return found
	}
	switch column := column.(type) {
	case array.ExtensionArray:
		return valueOf(column.Storage(), at, named)
	case *array.Dictionary:
		return valueOf(column.Dictionary(), column.GetValueIndex(at), named)
	case *array.Null:
		return nil
	case *array.Boolean:
		return column.Value(at)
	case *array.String:
		return column.Value(at)
	case *array.Binary:
		return bytes.Clone(column.Value(at))
	case *array.FixedSizeBinary:
		return bytes.Clone(column.Value(at))
	case *array.Decimal128:
		return column.Value(at).BigInt()
	case *array.Decimal256:
		return column.Value(at).BigInt()
	case *array.Int8:
		return big.NewInt(int64(column.Value(at)))
	case *array.Int16:
		return big.NewInt(int64(column.Value(at)))
	case *array.Int32:
		return big.NewInt(int64(column.Value(at)))
	case *array.Int64:
		return big.NewInt(int64(column.Value(at)))
	case *array.Uint8:
		return big.NewInt(int64(column.Value(at)))
	case *array.Uint16:
		return big.NewInt(int64(column.Value(at)))
	case *array.Uint32:
		return big.NewInt(int64(column.Value(at)))
	case *array.Date32:
		return big.NewInt(int64(column.Value(at)))
	case *array.Time32:
		return big.NewInt(int64(column.Value(at)))
	case *array.Time64:
		return big.NewInt(int64(column.Value(at)))
	case *array.Timestamp:
		return big.NewInt(int64(column.Value(at)))
	case *array.Uint64:
		return new(big.Int).SetUint64(column.Value(at))
	case *array.Float16:
		return float64(column.Value(at).Float32())
	case *array.Float32:
		return float64(column.Value(at))
	case *array.Float64:
		return column.Value(at)
	case *array.Struct:
		members, byName := []any{}, map[string]any{}
		for i := range column.NumField() {
			one := valueOf(column.Field(i), at, named)
			members, byName[column.DataType().(*arrow.StructType).Field(i).Name] = append(members, one), one
		}
		if named {
			return byName
		}
		return members
	case array.ListLike:
		from, to := column.ValueOffsets(at)
		return items(column.ListValues(), from, to)
	}
	fail(unsupported, "an Arrow array of %s", column.DataType())
	return nil
}

// -- rows: sections 7 to 7.2 ----------------------------------------------------------------------------------------

type row struct {
	key, order []byte
	values     []any
	kind       number // 0: whole, 1: partial, 2: a delete
	has        []bool
}

// fileRows returns the rows of a data file as the schema has them; columns are found by their field ids.
func (s *state) fileRows(folder string, one dataFile) []row {
	data := must(filepath.Join(folder, one.Job, one.ID+".parquet"))
	check(digestOf(data) == one.Digest, "the file %s is damaged", one.ID)
	parquet, err := file.NewParquetReader(bytes.NewReader(data))
	check(err == nil, "the file %s: %v", one.ID, err)
	reader, err := pqarrow.NewFileReader(parquet, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	check(err == nil, "the file %s: %v", one.ID, err)
	table, err := reader.ReadTable(context.Background())
	check(err == nil, "the file %s: %v", one.ID, err)
	check(table.NumRows() == int64(one.Rows), "the file %s has %d rows", one.ID, table.NumRows())
	columns := map[int][]any{}
	for number := range int(table.NumCols()) {
		text, _ := table.Schema().Field(number).Metadata.GetValue("PARQUET:field_id")
		id, err := strconv.Atoi(text)
		check(err == nil, "the file %s has a column without an id", one.ID)
		for _, chunk := range table.Column(number).Data().Chunks() {
			for at := range chunk.Len() {
				columns[id] = append(columns[id], valueOf(chunk, at, false))
			}
		}
	}
	rows := make([]row, table.NumRows())
	for at := range rows {
		found := &rows[at]
		for i, field := range s.schema.fields() {
			var value, has any
			if column, there := columns[int(field.ID)]; there {
				value = field.kind.read(column[at])
			}
			if column, there := columns[hasID+int(field.ID)]; there {
				has = column[at]
			}
			found.values, found.has = append(found.values, value), append(found.has, has == true)
			if i < len(s.schema.RowKey) {
				found.key = append(found.key, field.kind.encoded(value)...)
			} else if i < s.keys() {
				found.order = append(found.order, field.kind.encoded(value)...)
			}
		}
		if column, there := columns[kindID]; there && column[at] != nil {
			found.kind = whole(column[at])
		}
	}
	return rows
}

// keys returns the number of key fields.
func (s *state) keys() int { return len(s.schema.RowKey) + len(s.schema.SortKey) }

// rows returns the rows of a table in key order, merged and without the hidden ones.
func (s *state) rows(folder string) []row {
	if s.dropped {
		fail(2, "the table is dropped")
	}
	for _, group := range [][]field{s.schema.RowKey, s.schema.SortKey, s.schema.Values} {
		for i := range group {
			group[i].kind = kindOf(group[i].Stored)
		}
	}
	read, found := map[string][]row{}, []row{}
	for at, partition := range s.partitions {
		var live []row
		for _, name := range s.refs[partition] {
			if _, there := read[name]; !there {
				read[name] = s.fileRows(folder, s.files[name])
			}
			for _, one := range read[name] {
				above := at == 0 || bytes.Compare(s.boundaries[at-1], one.key) <= 0
				if above && (at == len(s.boundaries) || bytes.Compare(one.key, s.boundaries[at]) < 0) {
					live = append(live, one)
				}
			}
		}
		found = append(found, s.merged(live)...)
	}
	return slices.DeleteFunc(found, s.hides)
}

// merged merges the rows of a partition, which come in the order of arrival (7.1).
func (s *state) merged(rows []row) []row {
	mode := mergeMode{Mode: "keep_all"}
	if s.merge != nil {
		mode = *s.merge
	}
	byOrder := mode.Mode == "keep_all" || mode.Mode == "aggregate"
	compare := func(a, b row) int {
		return cmp.Or(bytes.Compare(a.key, b.key), map[bool]int{true: bytes.Compare(a.order, b.order)}[byOrder])
	}
	slices.SortStableFunc(rows, compare)
	if mode.Mode == "keep_all" {
		return rows
	}
	var found []row
	for len(rows) > 0 {
		count := 1
		for count < len(rows) && compare(rows[0], rows[count]) == 0 {
			count++
		}
		group := rows[:count]
		rows = rows[count:]
		switch mode.Mode {
		case "first":
			found = append(found, group[0])
		case "latest":
			if mode.By == "sort_key" {
				slices.SortStableFunc(group, func(a, b row) int { return bytes.Compare(a.order, b.order) })
			}
			found = append(found, s.latest(group)...)
		case "aggregate":
			found = append(found, s.aggregated(group, mode.Functions))
		default:
			fail(unsupported, "the merge mode %s", mode.Mode)
		}
	}
	return found
}

func (s *state) latest(group []row) []row {
	var last *row
	for _, one := range group {
		if one.kind == 2 {
			last = nil
			continue
		}
		next := one
		next.values = slices.Clone(one.values)
		for i := s.keys(); i < len(one.values) && one.kind == 1; i++ {
			if !one.has[i] {
				next.values[i] = nil
				if last != nil {
					next.values[i] = last.values[i]
				}
			}
		}
		last = &next
	}
	if last == nil {
		return nil
	}
	return []row{*last}
}

func (s *state) aggregated(group []row, functions map[string]string) row {
	found := group[0]
	found.values = slices.Clone(found.values)
	for i, field := range s.schema.Values {
		var given []any
		for _, one := range group {
			if value := one.values[s.keys()+i]; value != nil {
				given = append(given, value)
			}
		}
		found.values[s.keys()+i] = aggregate(functions[field.Name], field.kind, given)
	}
	return found
}

// aggregate returns a function of values that are not null (7.1.1).
func aggregate(function string, of kind, given []any) any {
	if len(given) == 0 {
		return nil
	}
	result := given[0]
	switch function {
	case "first":
	case "last":
		result = given[len(given)-1]
	case "min", "max":
		for _, one := range given[1:] {
			order := compared(one, result)
			if isNaN(result) || (!isNaN(one) && order != 0 && (order < 0) == (function == "min")) {
				result = one
			}
		}
	case "any", "all":
		result = slices.Contains(given, any(true))
		if function == "all" {
			result = !slices.Contains(given, any(false))
		}
	case "list", "set":
		all := []any{}
		for _, one := range given {
			all = append(all, one.([]any)...)
		}
		if function == "set" {
			slices.SortStableFunc(all, compared)
			all = slices.CompactFunc(all, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
		}
		result = all
	case "mean", "map_sum", "map_min", "map_max":
		return grouped(function, of, given)
	default:
		for _, one := range given[1:] {
			result = combined(function, result, one)
		}
		if function == "hll" || function == "quantiles" {
			return result
		}
		return fitting(of, result)
	}
	return result
}

// grouped returns the function of each member of a struct, or of each key of maps, keys ascending.
func grouped(function string, of kind, given []any) any {
	keys, values := []any{}, map[string][]any{}
	for _, one := range given {
		for i, pair := range one.([]any) {
			key, value := any(big.NewInt(int64(i))), pair
			if function != "mean" {
				key, value = pair.([]any)[0], pair.([]any)[1]
			}
			if _, known := values[fmt.Sprint(key)]; !known {
				keys, values[fmt.Sprint(key)] = append(keys, key), nil
			}
			if value != nil {
				values[fmt.Sprint(key)] = append(values[fmt.Sprint(key)], value)
			}
		}
	}
	slices.SortStableFunc(keys, compared)
	found := []any{}
	for i, key := range keys {
		if function == "mean" {
			found = append(found, aggregate("sum", of.inner[i], values[fmt.Sprint(key)]))
			continue
		}
		made := aggregate(strings.TrimPrefix(function, "map_"), of.inner[1], values[fmt.Sprint(key)])
		found = append(found, []any{key, made})
	}
	return found
}

func combined(function string, a, b any) any {
	x, whole := a.(*big.Int)
	if function == "join" {
		return a.(string) + "," + b.(string)
	}
	if function == "hll" || function == "quantiles" {
		fail(unsupported, "a union of sketches")
	}
	if !whole {
		return map[bool]float64{true: a.(float64) * b.(float64), false: a.(float64) + b.(float64)}[function == "product"]
	}
	y := b.(*big.Int)
	switch function {
	case "product":
		return new(big.Int).Mul(x, y)
	case "or":
		return new(big.Int).Or(x, y)
	}
	return new(big.Int).Add(x, y)
}

// fitting returns the result of a function in the type of its field, or fails.
func fitting(of kind, value any) any {
	if number, whole := value.(*big.Int); whole && strings.HasPrefix(of.name, "decimal") {
		digits, _ := strconv.Atoi(of.words[0])
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
		check(number.CmpAbs(limit) < 0, "a sum has too many digits")
	} else if whole {
		width := widths[of.name]
		low, limit := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(8*max(width, -width)))
		if width < 0 {
			limit.Rsh(limit, 1)
			low.Neg(limit)
		}
		check(low.Cmp(number) <= 0 && number.Cmp(limit) < 0, "%s overflows", number)
	}
	return value
}

func isNaN(value any) bool {
	number, float := value.(float64)
	return float && math.IsNaN(number)
}

// compared compares two values: numbers by value, texts by their bytes; NaN, then null come last.
func compared(a, b any) int {
	rank := func(value any) int {
		return map[bool]int{true: 1}[isNaN(value)] + 2*map[bool]int{true: 1}[value == nil]
	}
	if order := cmp.Compare(rank(a), rank(b)); order != 0 || rank(a) > 0 {
		return order
	}
	switch a := a.(type) {
	case *big.Int:
		return a.Cmp(b.(*big.Int))
	case float64:
		return cmp.Compare(a, b.(float64))
	case string:
		return strings.Compare(a, b.(string))
	}
	return bytes.Compare(a.([]byte), b.([]byte))
}

var condition = regexp.MustCompile(`(?i)^\s*"?(\w+)"?\s*(=|<>|<=|>=|<|>)\s*(-?\d+|'[^']*')\s*(?:and\s|$)`)

// hides returns whether the filter or the age-off of the table hides a row (7.2).
func (s *state) hides(one row) bool {
	if s.filter == nil {
		return false
	}
	for rest := s.filter.Predicate; rest != ""; {
		found := condition.FindStringSubmatch(rest)
		if found == nil {
			fail(unsupported, "the predicate %s", s.filter.Predicate)
		}
		rest = rest[len(found[0]):]
		at := slices.IndexFunc(s.schema.fields(), func(f field) bool { return f.Name == found[1] })
		check(at >= 0, "a predicate names %s", found[1])
		var constant any = strings.Trim(found[3], "'")
		if number, whole := new(big.Int).SetString(found[3], 10); whole {
			constant = number
		}
		value := one.values[at]
		if value == nil || fmt.Sprintf("%T", value) != fmt.Sprintf("%T", constant) {
			return true
		}
		order := compared(value, constant)
		true_ := map[string]bool{
			"=": order == 0, "<>": order != 0, "<": order < 0, ">": order > 0, "<=": order <= 0, ">=": order >= 0,
		}
		if !true_[found[2]] {
			return true
		}
	}
	at := slices.IndexFunc(s.schema.fields(), func(f field) bool { return f.ID == s.filter.AgeField })
	if at < 0 || s.cutUS == 0 || one.values[at] == nil {
		return false
	}
	of, unit := s.schema.fields()[at].kind, s.filter.Unit
	value, cut := one.values[at].(*big.Int), big.NewInt(int64(s.cutUS))
	if of.name == "date32" {
		return value.Cmp(new(big.Int).Div(cut, big.NewInt(86_400_000_000))) < 0
	}
	if of.name == "timestamp" {
		unit = of.words[0]
	}
	perSecond := map[string]int64{"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
	scaled := new(big.Int).Mul(value, big.NewInt(1_000_000))
	return scaled.Cmp(new(big.Int).Mul(cut, big.NewInt(perSecond))) < 0
}
