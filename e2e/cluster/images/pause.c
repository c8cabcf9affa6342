// The process that holds a pod's namespaces. With a shared PID namespace it is process 1 of the pod: orphans are its to reap.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int signal)
{
    (void)signal;
    _exit(0);
}

int main(void)
{
    struct sigaction reap = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    struct sigaction stop = {.sa_handler = end};

    // The kernel reaps children for those who say that they will not wait.
    if (sigaction(SIGCHLD, &reap, NULL) || sigaction(SIGTERM, &stop, NULL) || sigaction(SIGINT, &stop, NULL))
        return EXIT_FAILURE;
    for (;;)
        pause();
}
