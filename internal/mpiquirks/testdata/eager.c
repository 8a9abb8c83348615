/* eager SHORT LONG, on two ranks: whether a message of each length is sent before its receive is
 * posted. A send of SHORT bytes is awaited, however long that takes, while rank 1 waits for another
 * message and receives neither; one of LONG bytes is tested often. Prints "SHORT eager, LONG not",
 * or what else it is. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, flag = 0;
    int length[2] = {atoi(argv[1]), atoi(argv[2])};
    char *data[2];
    MPI_Request send[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 2; i++)
        data[i] = calloc(1, length[i]);
    if (rank == 0) {
        MPI_Isend(data[0], length[0], MPI_CHAR, 1, 0, MPI_COMM_WORLD, &send[0]);
        MPI_Wait(&send[0], MPI_STATUS_IGNORE);
        MPI_Isend(data[1], length[1], MPI_CHAR, 1, 1, MPI_COMM_WORLD, &send[1]);
        for (int i = 0; i < 10000 && !flag; i++)
            MPI_Test(&send[1], &flag, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
        MPI_Wait(&send[1], MPI_STATUS_IGNORE);
        printf("%d eager, %d %s\n", length[0], length[1], flag ? "eager too" : "not");
    } else {
        MPI_Recv(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 2; i++)
            MPI_Recv(data[i], length[i], MPI_CHAR, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
