// Recovery after losses by ULFM (User Level Failure Mitigation, MPI Forum issue 20), if the library
// has its functions.

// ulfm returns 1 if the library has the functions, and -1 if it has but reports them as switched
// off.
static int ulfm(void) {
	if (!MPI(Comm_revoke) || !MPI(Comm_agree) || !MPI(Comm_shrink) || !MPI(Comm_failure_ack)) return 0;
	if (!MPI(Comm_get_failed) && !MPI(Comm_failure_get_acked)) return 0;
#ifdef MPI_FT
	int *on = NULL, found = 0;
	if (MPI(Comm_get_attr)(MPI_COMM_WORLD, MPI_FT, &on, &found) || !found || !on || !*on) return -1;
#endif
	return 1;
}

static int comm_revoke(uintptr_t comm) {
	ENTER();
	return MPI(Comm_revoke) ? MPI(Comm_revoke)(IN(MPI_Comm, comm)) : COH_MISSING;
}

static int comm_agree(uintptr_t comm, int *flag) {
	ENTER();
	return MPI(Comm_agree) ? MPI(Comm_agree)(IN(MPI_Comm, comm), flag) : COH_MISSING;
}

static int comm_shrink(uintptr_t comm, uintptr_t *out) {
	ENTER();
	MPI_Comm c = MPI_COMM_NULL;
	if (!MPI(Comm_shrink)) return COH_MISSING;
	int rc = MPI(Comm_shrink)(IN(MPI_Comm, comm), &c);
	if (!rc) rc = returns_errors(c);
	*out = OUT(c);
	return rc;
}

static int comm_ack(uintptr_t comm) {
	ENTER();
	return MPI(Comm_failure_ack) ? MPI(Comm_failure_ack)(IN(MPI_Comm, comm)) : COH_MISSING;
}

// group_of_lost returns the group of the members known to be lost.
static int group_of_lost(MPI_Comm c, MPI_Group *group) {
	if (MPI(Comm_get_failed)) return MPI(Comm_get_failed)(c, group);
	if (!MPI(Comm_failure_ack) || !MPI(Comm_failure_get_acked)) return COH_MISSING;
	int rc = MPI(Comm_failure_ack)(c);
	return rc ? rc : MPI(Comm_failure_get_acked)(c, group);
}

// comm_ranks returns the ranks in MPI_COMM_WORLD of a communicator's members, or of the lost ones.
static int comm_ranks(uintptr_t comm, int lost, int room, int *ranks, int *n) {
	ENTER();
	MPI_Comm c = IN(MPI_Comm, comm);
	MPI_Group some = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
	int rc = lost ? group_of_lost(c, &some) : MPI(Comm_group)(c, &some);
	if (rc) return rc;
	*n = 0;
	rc = MPI(Group_size)(some, n);
	if (!rc && *n > room) rc = COH_TOO_LARGE;
	if (!rc && *n > 0) {
		int *from = malloc(*n * sizeof *from);
		if (!from) rc = COH_NO_MEMORY;
		for (int i = 0; from && i < *n; i++) from[i] = i;
		if (!rc) rc = MPI(Comm_group)(MPI_COMM_WORLD, &all);
		if (!rc) {
			rc = MPI(Group_translate_ranks)(some, *n, from, all, ranks);
			MPI(Group_free)(&all);
		}
		free(from);
	}
	if (some != MPI_GROUP_EMPTY) MPI(Group_free)(&some);
	return rc;
}
