// Compiles the folder named by the argument with the CPython 3.13 of npm's pyodide; see bytecode.py.
// Usage: node infra/compile.mjs FOLDER PROGRAM
import { loadPyodide } from "pyodide";

const [folder, program] = process.argv.slice(2);
const python = await loadPyodide();
python.FS.mkdir("/work");
python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, "/work");
python.globals.set("FOLDER", "/work");
python.runPython(program);
