// Starts a PouchDB server that keeps everything in memory on the port that is asked for. Its own
// authentication does not work without files, so who may ask is told at the door.
import express from "express";
import couchdb from "express-pouchdb";
import PouchDB from "pouchdb-core";
import memory from "pouchdb-adapter-memory";
import mapreduce from "pouchdb-mapreduce";

const [port, user, password] = process.argv.slice(2);
const login = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
PouchDB.plugin(memory).plugin(mapreduce);
const app = express();
app.use((request, answer, next) => {
  if (request.get("authorization") === login) return next();
  answer.set("WWW-Authenticate", "Basic").status(401).json({ error: "unauthorized" });
});
app.use(couchdb(PouchDB.defaults({ adapter: "memory" }), { mode: "minimumForPouchDB", inMemoryConfig: true }));
app.listen(Number(port), "127.0.0.1");
