// Package budget bounds the ephemeral znodes of a session, with two promises:
//
//   - The bytes of all reservations and znodes never exceed the limit, unless a create makes two znodes (see
//     [Budget.AddTwin]).
//   - The calls that reserve in a directory are admitted in the order of arrival.
//
// A call makes a [Reservation] before it creates znodes in a directory. [Reservation.Begin] takes the bytes of one
// znode from the reservation, as a [Charge], before the create is sent. Once the create is answered, [Charge.Bind]
// binds the charge to the path of the znode, or [Charge.End] ends the charge. [Budget.Free] ends the charge of a
// znode after its deletion, and [Budget.EndSession] ends the charges of all znodes.
//
// One mutex guards a budget with all its reservations and charges. A budget calls no other package under that mutex,
// and has no goroutine.
package budget
