/* Prints what the MPI library says it is, and its control variables: a line each, the name, a tab,
 * and the description in one line. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING], name[1024], about[1 << 16];
    int len, provided, n;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Get_library_version(text, &len);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = '|';
    printf("library\t%s\n", text);
    MPI_T_cvar_get_num(&n);
    for (int i = 0; i < n; i++) {
        int names = sizeof name, abouts = sizeof about, verbosity, bind, scope;
        MPI_Datatype type;
        MPI_T_enum values;
        if (MPI_T_cvar_get_info(i, name, &names, &verbosity, &type, &values, about, &abouts, &bind, &scope) != MPI_SUCCESS)
            continue;
        for (char *c = about; *c; c++)
            if (*c == '\n' || *c == '\t')
                *c = '|';
        printf("%s\t%s\n", name, about);
    }
    MPI_T_finalize();
    return 0;
}
