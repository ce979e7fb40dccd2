// A reader of Lakebed's tables in Go, written from docs/format.md alone. Numbers are those of the page's sections.
//
//	go run . FOLDER TABLE [VERSION]
//
// It prints the rows of a table of an instance on local disk in key order, one JSON list a line, in the form of section
// 13. It leaves with 3 if the table needs something that this program does not know, and with 4 if an object is damaged.
//
// What it leaves out: logs in databases, bounds and filters with which other readers skip files, digests of blocks (it
// verifies whole files), unions of sketches, and SQL beyond comparisons of columns with constants.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/zeebo/xxh3"
)

const (
	kindID = 1 << 30 // of the hidden column with the kind of a row (7.1)
	hasID  = 1 << 30 // of the hidden column for field N: this + N

	unsupported = 3
	damaged     = 4
)

// refusal is why a table cannot be read; it is thrown, and caught in main.
type refusal struct {
	code int
	text string
}

func fail(code int, format string, values ...any) {
	panic(refusal{code, fmt.Sprintf(format, values...)})
}

func check(true bool, format string, values ...any) {
	if !true {
		fail(damaged, format, values...)
	}
}

// -- documents: sections 1 and 3 ------------------------------------------------------------------------------------

// number is a JSON number that is whole, in any form: 7, 7.0, 70e-1.
type number int64

func (n *number) UnmarshalJSON(data []byte) error {
	exact, ok := new(big.Rat).SetString(string(data))
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return fmt.Errorf("%s is no whole number", data)
	}
	*n = number(exact.Num().Int64())
	return nil
}

type header struct {
	Format      *number   `json:"format"`
	Features    *[]string `json:"features"`
	Digest      string    `json:"digest"`
	Log         string    `json:"log"`
	Version     number    `json:"version"`
	Count       number    `json:"count"`
	Previous    string    `json:"previous"`
	EntryDigest string    `json:"entry_digest"`
	LogStart    number    `json:"log_start"`
	Instance    string    `json:"instance"`
	LogURL      *string   `json:"log_url"`
	Sidecars    [][]any   `json:"sidecars"`
}

func digestOf(data []byte) string {
	sum := xxh3.Hash128(data)
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

func decode(data []byte, into any, what string) {
	if err := json.Unmarshal(data, into); err != nil {
		fail(damaged, "%s: %v", what, err)
	}
}

// checkFeatures refuses features that concern readers; an unknown word concerns every program (5.2).
func checkFeatures(required map[string]*string) {
	for name, of := range required {
		if of != nil && *of != "writers" && *of != "collectors" && name != "sql-datafusion-1" {
			fail(unsupported, "the feature %s", name)
		}
	}
}

// document returns the header of a document and the lines after it.
func document(data []byte, what string) (header, [][]byte) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	var head header
	decode(first, &head, what)
	check(head.Format != nil && head.Features != nil, "%s has no format or features", what)
	if *head.Format != 2 {
		fail(unsupported, "%s is of format %d", what, *head.Format)
	}
	readers := "readers"
	for _, name := range *head.Features {
		checkFeatures(map[string]*string{name: &readers})
	}
	hidden := bytes.Replace(data, []byte(head.Digest), bytes.Repeat([]byte("?"), 32), 1)
	check(len(head.Digest) == 32 && digestOf(hidden) == head.Digest, "%s was changed after it was written", what)
	lines := bytes.Split(rest, []byte("\n"))
	check(len(lines[len(lines)-1]) == 0, "%s is cut short", what)
	return head, lines[:len(lines)-1]
}

func read(path string) ([]byte, bool) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false
	}
	check(err == nil, "%v", err)
	return data, true
}

func must(path string) []byte {
	data, there := read(path)
	check(there, "%s is missing", path)
	return data
}

// entries calls a function for each entry of a log after a version, up to the last or the wanted one (3).
func entries(folder, log string, after number, previous string, wanted number, each func(header, [][]byte)) {
	for version := after + 1; wanted < 0 || version <= wanted; version++ {
		data, there := read(filepath.Join(folder, fmt.Sprintf("%020d.ndjson", version)))
		if !there {
			return
		}
		what := fmt.Sprintf("entry %d of %s", version, log)
		head, lines := document(data, what)
		check(head.Log == log && head.Version == version, "%s is another one", what)
		check(int(head.Count) == len(lines), "%s is cut short", what)
		check(head.Previous == previous, "%s does not follow the one before", what)
		each(head, lines)
		previous = digestOf(data)
	}
}

// tableID returns the id of the table with a name: the log of the catalog is never truncated (4).
func tableID(root, instance, name string) string {
	names := map[string]string{}
	entries(filepath.Join(root, "catalog/log"), instance, 0, "", -1, func(_ header, lines [][]byte) {
		for _, line := range lines {
			var change struct {
				Type, Table, Name string
				Features          map[string]*string
			}
			decode(line, &change, "a transaction of the catalog")
			switch change.Type {
			case "register_table", "rename_table":
				names[change.Table] = change.Name
			case "purge_table":
				delete(names, change.Table)
			case "require_features":
				checkFeatures(change.Features)
			case "set_online", "pause_operations", "set_defaults", "fence_creations":
			default:
				fail(unsupported, "a transaction of the catalog of type %s", change.Type)
			}
		}
	})
	for id, one := range names {
		if one == name {
			return id
		}
	}
	fail(2, "there is no table %s", name)
	return ""
}

// -- the state of a table: sections 5 and 6 -------------------------------------------------------------------------

type dataFile struct {
	ID     string `json:"id"`
	Job    string `json:"job"`
	Rows   number `json:"rows"`
	Digest string `json:"digest"`
}

type field struct {
	ID       number          `json:"id"`
	Name     string          `json:"name"`
	Stored   json.RawMessage `json:"type"`
	Nullable bool            `json:"nullable"`
	kind     kind
}

type schema struct {
	RowKey  []field `json:"row_key"`
	SortKey []field `json:"sort_key"`
	Values  []field `json:"values"`
}

func (s *schema) fields() []field {
	return slices.Concat(s.RowKey, s.SortKey, s.Values)
}

type mergeMode struct {
	Mode      string            `json:"mode"`
	By        string            `json:"by"`
	Functions map[string]string `json:"functions"`
}

type rowFilter struct {
	Predicate string `json:"predicate"`
	AgeField  number `json:"age_field"`
	Unit      string `json:"unit"`
}

// state is what a reader needs of a table's state. refs are ids of files by partition, in the order of arrival.
type state struct {
	version       number
	schema        schema
	boundaries    [][]byte
	partitions    []number
	nextPartition number
	files         map[string]dataFile
	refs          map[number][]string
	merge         *mergeMode
	filter        *rowFilter
	cutUS         number
	dropped       bool
}

type reference struct {
	file      string
	partition number
}

type change struct {
	Type       string               `json:"type"`
	Schema     schema               `json:"schema"`
	Boundaries []string             `json:"boundaries"`
	Merge      *mergeMode           `json:"merge"`
	Files      json.RawMessage      `json:"files"`
	References json.RawMessage      `json:"references"`
	Drop       json.RawMessage      `json:"drop"`
	Cuts       [][2]json.RawMessage `json:"cuts"`
	Regions    [][2]json.RawMessage `json:"regions"`
	Partitions []number             `json:"partitions"`
	Filter     *rowFilter           `json:"filter"`
	CutUS      number               `json:"cut_us"`
	Mark       string               `json:"mark"`
	Value      number               `json:"value"`
	Features   map[string]*string   `json:"features"`
}

func fromHex(keys []string) [][]byte {
	found := make([][]byte, len(keys))
	for i, key := range keys {
		data, err := hex.DecodeString(key)
		check(err == nil, "%s is no key", key)
		found[i] = data
	}
	return found
}

// listed returns references, or pairs of a file and a partition, which lie in the line or in a sidecar (3.3).
func listed(data json.RawMessage, folder string, head header) []reference {
	var found []reference
	if len(data) == 0 {
		return nil
	}
	if data[0] == '[' {
		var rows [][]json.RawMessage
		decode(data, &rows, "references")
		for _, row := range rows {
			var one reference
			check(len(row) == 5 || len(row) == 2, "a reference of %d values", len(row))
			decode(row[0], &one.file, "a reference")
			decode(row[1], &one.partition, "a reference")
			found = append(found, one)
		}
		return found
	}
	var given struct {
		Sidecar    string `json:"sidecar"`
		References number `json:"references"`
	}
	decode(data, &given, "a sidecar reference")
	at := slices.IndexFunc(head.Sidecars, func(one []any) bool { return one[1] == given.Sidecar })
	check(at >= 0, "the header does not name the sidecar %s", given.Sidecar)
	name := fmt.Sprintf("sidecars/%020d-%s.arrow", int64(head.Sidecars[at][0].(float64)), given.Sidecar)
	content := must(filepath.Join(folder, name))
	check(digestOf(content) == given.Sidecar, "the sidecar %s is damaged", name)
	for _, row := range arrowRows(content) {
		found = append(found, reference{row["file"].(string), whole(row["partition"])})
	}
	check(len(found) == int(given.References), "the sidecar %s has another number of references", name)
	return found
}

func (s *state) refer(references []reference) {
	for _, one := range references {
		s.refs[one.partition] = append(s.refs[one.partition], one.file)
	}
}

// cut replaces neighbouring partitions by others, and their references by these.
func (s *state) cut(partitions []number, keys []string) {
	first := slices.Index(s.partitions, partitions[0])
	check(first >= 0, "there is no partition %d", partitions[0])
	var ids []number
	for range len(keys) + 1 {
		ids = append(ids, s.nextPartition)
		s.nextPartition++
	}
	s.partitions = slices.Replace(s.partitions, first, first+len(partitions), ids...)
	s.boundaries = slices.Replace(s.boundaries, first, first+len(partitions)-1, fromHex(keys)...)
	for _, one := range partitions {
		delete(s.refs, one)
	}
}

// replace drops and adds references; in a table that merges rows, new ones stand where the last dropped one stood.
func (s *state) replace(drop, added []reference) {
	going, coming := map[number]map[string]bool{}, map[number][]string{}
	for _, one := range drop {
		if going[one.partition] == nil {
			going[one.partition] = map[string]bool{}
		}
		going[one.partition][one.file] = true
		coming[one.partition] = nil
	}
	for _, one := range added {
		coming[one.partition] = append(coming[one.partition], one.file)
	}
	for partition, files := range coming {
		old, place := s.refs[partition], len(s.refs[partition])
		for at, file := range old {
			if s.merge != nil && going[partition][file] {
				place = at + 1
			}
		}
		gone := func(file string) bool { return going[partition][file] }
		before := slices.DeleteFunc(slices.Clone(old[:place]), gone)
		after := slices.DeleteFunc(slices.Clone(old[place:]), gone)
		s.refs[partition] = slices.Concat(before, files, after)
	}
}

func (s *state) apply(line []byte, folder string, head header) {
	var one change
	decode(line, &one, "a transaction")
	var files []dataFile
	if (one.Type == "add_files" || one.Type == "replace" || one.Type == "restore_version") && one.Files != nil {
		decode(one.Files, &files, "files")
	}
	for _, file := range files {
		s.files[file.ID] = file
	}
	added := listed(one.References, folder, head)
	switch one.Type {
	case "create_table":
		s.schema, s.merge, s.boundaries = one.Schema, one.Merge, fromHex(one.Boundaries)
		for s.nextPartition = 1; int(s.nextPartition) <= len(s.boundaries)+1; s.nextPartition++ {
			s.partitions = append(s.partitions, s.nextPartition)
		}
	case "add_files":
		s.refer(added)
	case "replace", "drop_expired":
		s.replace(listed(one.Drop, folder, head), added)
	case "split_partitions", "remove_range", "join_partitions", "restore_version":
		for _, cut := range append(one.Cuts, one.Regions...) {
			var partitions []number
			var keys []string
			if cut[0][0] != '[' {
				cut[0] = json.RawMessage("[" + string(cut[0]) + "]")
			}
			decode(cut[0], &partitions, "a cut")
			decode(cut[1], &keys, "a cut")
			s.cut(partitions, keys)
		}
		if one.Type == "join_partitions" {
			s.cut(one.Partitions, nil)
		}
		s.refer(added)
		if one.Type == "remove_range" {
			for _, partition := range one.Partitions {
				delete(s.refs, partition)
			}
		}
	case "alter_schema":
		s.schema = one.Schema
		if one.Merge != nil {
			s.merge = one.Merge
		}
	case "set_merge":
		s.merge = one.Merge
	case "set_filter":
		s.filter, s.cutUS = one.Filter, one.CutUS
	case "raise_watermark":
		if one.Mark == "age_off_cut_us" {
			s.cutUS = one.Value
		}
	case "require_features":
		checkFeatures(one.Features)
	case "drop_table":
		s.dropped = true
	case "open_job", "close_job", "concatenate_runs", "alter_settings", "advance_view", "retire_files", "purge_files",
		"set_tag", "remove_tag", "submit_requests", "fail_request", "reject_request", "add_index", "drop_index":
	default:
		fail(unsupported, "a transaction of type %s", one.Type)
	}
}

// checkpoint reads the checkpoint in a folder; it returns the digest of its entry too (6).
func checkpoint(folder, table string) (*state, string) {
	head, lines := document(must(filepath.Join(folder, "manifest.ndjson")), "the manifest of "+folder)
	check(head.Log == table && len(lines) == 1, "the checkpoint %s is of another log", folder)
	var body struct {
		State struct {
			Version    number             `json:"version"`
			Schemas    []schema           `json:"schemas"`
			Boundaries []string           `json:"boundaries"`
			Partitions []number           `json:"partitions"`
			Next       number             `json:"next_partition"`
			Merge      *mergeMode         `json:"merge"`
			Filter     *rowFilter         `json:"filter"`
			CutUS      number             `json:"age_off_cut_us"`
			Dropped    bool               `json:"dropped"`
			Features   map[string]*string `json:"features"`
		} `json:"state"`
		Segments map[string][]json.RawMessage `json:"segments"`
	}
	decode(lines[0], &body, "the manifest of "+folder)
	stored := body.State
	checkFeatures(stored.Features)
	found := &state{
		version: stored.Version, schema: stored.Schemas[len(stored.Schemas)-1], merge: stored.Merge,
		boundaries: fromHex(stored.Boundaries), partitions: stored.Partitions, nextPartition: stored.Next,
		filter: stored.Filter, cutUS: stored.CutUS, dropped: stored.Dropped,
		files: map[string]dataFile{}, refs: map[number][]string{},
	}
	for kind := range body.Segments {
		known := []string{"files", "references", "requests", "open_requests"}
		check(slices.Contains(known, kind), "segments of an unknown kind: %s", kind)
	}
	for _, listed := range body.Segments["files"] {
		for _, row := range arrowRows(segment(folder, listed)) {
			for _, one := range row["file"].([]any) {
				found.add(one.(map[string]any), row["id"].(string))
			}
		}
	}
	for _, listed := range body.Segments["references"] {
		var files []string
		rows := arrowRows(segment(folder, listed))
		for _, row := range rows {
			for _, one := range row["files"].([]any) {
				files = append(files, found.add(one.(map[string]any), ""))
			}
		}
		for _, row := range rows {
			partition := whole(row["partition"])
			for _, at := range row["file"].([]any) {
				found.refs[partition] = append(found.refs[partition], files[whole(at)])
			}
		}
	}
	return found, head.EntryDigest
}

// add adds a file of a segment, whose id may be in a column of its own.
func (s *state) add(facts map[string]any, id string) string {
	if own, ok := facts["id"].(string); ok {
		id = own
	}
	s.files[id] = dataFile{id, facts["job"].(string), whole(facts["rows"]), facts["digest"].(string)}
	return id
}

// segment returns the bytes of a segment, which lies in the manifest or beside it.
func segment(folder string, listed json.RawMessage) []byte {
	var inline string
	if listed[0] == '"' {
		decode(listed, &inline, "a segment")
		data, err := base64.StdEncoding.DecodeString(inline)
		check(err == nil, "a segment is no base64")
		return data
	}
	var named []any
	decode(listed, &named, "a segment")
	data := must(filepath.Join(folder, "segments", named[0].(string)+".arrow"))
	check(digestOf(data) == named[1], "the segment %s is damaged", named[0])
	return data
}

// stateAt returns the state of a table at a version, the latest if that is below 0 (1.1, 6).
func stateAt(root, table string, wanted number) *state {
	base := filepath.Join(root, "tables", table)
	log, folder := filepath.Join(base, "log"), filepath.Join(base, "checkpoints")
	logStart := number(0)
	if data, there := read(filepath.Join(log, "log-start.ndjson")); there {
		head, _ := document(data, "the log start")
		logStart = head.LogStart
	}
	found, previous := &state{files: map[string]dataFile{}, refs: map[number][]string{}}, ""
	if wanted < 0 {
		if one, digest := latest(filepath.Join(folder, "latest"), table); one != nil && one.version >= logStart {
			found, previous = one, digest
		}
	}
	if found.version == 0 && logStart > 0 {
		retained, _ := filepath.Glob(filepath.Join(folder, "[0-9]*"))
		slices.Sort(retained)
		for _, one := range retained {
			digits, _ := strconv.ParseInt(filepath.Base(one), 10, 64)
			version := number(digits)
			// One below the log start is of a tagged version, and of no later one.
			if version == wanted || (version >= logStart && (wanted < 0 || version <= wanted)) {
				found, previous = checkpoint(one, table)
			}
		}
		if found.version == 0 {
			fail(2, "version %d is not retained", wanted)
		}
	}
	entries(log, table, found.version, previous, wanted, func(head header, lines [][]byte) {
		for _, line := range lines {
			found.apply(line, log, head)
		}
		found.version = head.Version
	})
	if found.version == 0 || (wanted >= 0 && found.version != wanted) {
		fail(2, "there is no version %d", wanted)
	}
	return found
}

// latest returns the latest checkpoint; nil if it is missing or damaged, because it is derived (6).
func latest(folder, table string) (found *state, digest string) {
	defer func() {
		if thrown := recover(); thrown != nil {
			if one, ok := thrown.(refusal); !ok || one.code != damaged {
				panic(thrown)
			}
			found = nil
		}
	}()
	return checkpoint(folder, table)
}

// -- Arrow ----------------------------------------------------------------------------------------------------------

// whole returns a whole number of an Arrow array.
func whole(value any) number { return number(value.(*big.Int).Int64()) }

// arrowRows returns the rows of an Arrow file, by the names of its columns.
func arrowRows(data []byte) []map[string]any {
	file, err := ipc.NewFileReader(bytes.NewReader(data))
	check(err == nil, "no Arrow file: %v", err)
	check(file.NumRecords() == 1, "an Arrow file of %d batches", file.NumRecords())
	batch, err := file.RecordBatch(0)
	check(err == nil, "no Arrow batch: %v", err)
	rows := make([]map[string]any, batch.NumRows())
	for at := range rows {
		rows[at] = map[string]any{}
		for number, name := range names(batch.Schema()) {
			rows[at][name] = valueOf(batch.Column(number), at, true)
		}
	}
	return rows
}

func names(of *arrow.Schema) []string {
	found := make([]string, of.NumFields())
	for i := range found {
		found[i] = of.Field(i).Name
	}
	return found
}

func main() {
	defer func() {
		thrown := recover()
		one, ok := thrown.(refusal)
		if thrown != nil && !ok {
			panic(thrown)
		}
		if ok {
			kinds := map[int]string{2: "error", unsupported: "unsupported", damaged: "damaged"}
			fmt.Fprintf(os.Stderr, "%s: %s\n", kinds[one.code], one.text)
			os.Exit(one.code)
		}
	}()
	if len(os.Args) < 3 {
		fail(2, "usage: FOLDER TABLE [VERSION]")
	}
	root, wanted := os.Args[1], number(-1)
	if len(os.Args) > 3 {
		digits, err := strconv.ParseInt(os.Args[3], 10, 64)
		if err != nil {
			fail(2, "%s is no version", os.Args[3])
		}
		wanted = number(digits)
	}
	head, _ := document(must(filepath.Join(root, "instance.json")), "instance.json")
	if head.LogURL != nil && *head.LogURL != "" {
		fail(unsupported, "a log at %s", *head.LogURL)
	}
	table := tableID(root, head.Instance, os.Args[2])
	found := stateAt(root, table, wanted)
	out := bufio.NewWriter(os.Stdout)
	rows := found.rows(filepath.Join(root, "tables", table, "data"))
	fields := found.schema.fields()
	for _, row := range rows {
		values := make([]any, len(fields))
		for i, one := range fields {
			values[i] = one.kind.shown(row.values[i])
		}
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(values); err != nil {
			fail(damaged, "%v", err)
		}
	}
	out.Flush()
}
