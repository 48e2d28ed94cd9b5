import { call } from "./caller.js";

console.log(JSON.stringify(await call(process.argv[2])));
