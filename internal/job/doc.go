// Package job decides what follows from the events of a job of several ranks, such as a failed rank,
// a lost host, a signal, or a limit of time.
//
// A [Machine] starts no process and reads no clock. Its owner, internal/spawn or internal/remote, starts
// and watches the ranks, calls a method for each event, and carries out what the machine asks for through
// the functions of its [Config].
//
// # How a job ends
//
// A job ends when every rank has ended. The first rank to fail gives the job its status. The others have
// [Config.Grace] to notice and to end by themselves. Those that still run then are terminated, and killed
// [Config.KillAfter] later. Other reasons to end a job, such as a timeout, terminate the ranks at once.
//
// These are all ends of a job. The first that happens decides, but for Abort:
//
//	event                                                  status
//	all ranks have ended with 0, also after a signal       0
//	Continues: ranks failed or hosts were lost, then       0
//	  the others have ended with 0
//	all ranks of a job that continues have failed          that of the first
//	a rank has failed                                      its own, or 128 + its signal
//	Abort                                                  its code, also after another rank's failure
//	HostLost, and the job does not continue                255
//	Tick: the timeout, while ranks run                     124
//	Signal: a second request to end                        128 + the signal
//	LostOutput: a request while only output is left        128 + the signal
//	OutputFailed: the reader has closed the output         141
//	OutputFailed: another reason                           1
//	Abandon                                                1
//	End                                                    what its caller gives
//
// TestEventsDecideHowJobEnds has a row for each of them.
package job
