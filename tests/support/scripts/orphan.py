"""The code of a script that leaves a child without its launcher."""

CODE = """
import os, signal, sys, time
launcher = os.getppid()
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.set_inheritable(writer, True)
        program = "import os, time; os.write(%d, b'%%d' %% os.getpid()); time.sleep(1000)" % writer
        os.execve(sys.executable, [sys.executable, "-c", program], {environment})
    os._exit(0)
print(os.read(reader, 20).decode(), flush=True)
os.kill(launcher, signal.SIGKILL)
time.sleep(1000)
"""


def orphan_code(environment: str) -> str:
    """Return code that forks twice into its own session, prints the id, and kills its launcher.

    `environment` is the expression for the environment of the child.
    """
    return CODE.replace("{environment}", environment)
