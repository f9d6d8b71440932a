package kvtransfer

// The witness: decode recomputes rows from its own token ids and compares them with what came. Labels can all be right on
// wrong bytes; these checks look at the bytes' meaning.

// Witness starts the comparison.
func (m *Inbound) Witness() bool {
	if m.State != InAdmitted {
		return false
	}
	m.State = InWitnessing
	return true
}

// WitnessedRows is part (a): layer 0 of every row of [C, N). row is the first that differs, or -1.
func (m *Inbound) WitnessedRows(row int) {
	if m.State != InWitnessing {
		return
	}
	if row >= 0 && kept("witness") {
		m.End(Errorf(HandoffWitness, "witness: layer 0 differs from the prompt at row %d of %d", row, m.Reservation.N))
		return
	}
	m.rowsAgree = true
	m.agree()
}

// WitnessedLast is part (b): all layers of the last row, and the last layer's output. mismatch is the layer and part that
// differs, or "".
func (m *Inbound) WitnessedLast(mismatch string) {
	if m.State != InWitnessing {
		return
	}
	if mismatch != "" && kept("witness") {
		m.End(Errorf(HandoffWitness, "witness: row %d differs in %s", m.Reservation.N-1, mismatch))
		return
	}
	m.lastAgree = true
	m.agree()
}

// agree lets the attempt run once both parts have agreed.
func (m *Inbound) agree() {
	if m.Agreed() {
		m.State = InRunning
	}
}

// RowsAgree says that part (a) of the witness agreed.
func (m *Inbound) RowsAgree() bool { return m.rowsAgree }

// Agreed says that both parts of the witness agreed.
func (m *Inbound) Agreed() bool { return m.rowsAgree && m.lastAgree }
