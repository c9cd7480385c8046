// Starts the GitHub API of emulate on the port that is asked for, with two repositories of one commit each.
import { createEmulator } from "emulate";

const owner = "octocat";
const token = { login: owner, scopes: ["repo"] };
await createEmulator({
  service: "github",
  port: Number(process.argv[2]),
  baseUrl: `http://127.0.0.1:${process.argv[2]}`,
  seed: {
    // Each has its own rate limit of 5000 requests.
    tokens: { reader: token, writer: token, judge: token },
    github: {
      users: [{ login: owner, name: "The Octocat" }],
      repos: ["kernel", "tools"].map((name) => ({ owner, name, auto_init: true })),
    },
  },
});
