package recipes

import (
	"net/url"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// Segment returns a segment of a path for any text, such as the name of a product from a request. Not every text is
// valid as a segment, and a slash would begin another segment. Different texts have different segments.
//
//	m, err := mutex.New(client, "/locks/"+recipes.Segment(product))
//
// The text is percent-encoded, as url.PathEscape does: letters of ASCII, digits and most punctuation stay, and url.PathUnescape
// returns the text. Beyond that, Segment encodes the last byte of a text that a znode may not have as its name (".", ".."), of
// the server's own name ("zookeeper"), and of the name of a contender, such as lock-0000000000. The segment of the empty
// text is "%". A segment has up to three times the bytes of its text, and a path at most 16 KiB.
func Segment(text string) string {
	segment := url.PathEscape(text)
	switch {
	case segment == "":
		return "%"
	case segment == ".", segment == "..", segment == "zookeeper", queue.IsContender(segment):
		const digits = "0123456789ABCDEF"
		last := segment[len(segment)-1]
		return segment[:len(segment)-1] + string([]byte{'%', digits[last>>4], digits[last&15]})
	default:
		return segment
	}
}
