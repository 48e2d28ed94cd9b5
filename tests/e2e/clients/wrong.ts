// Each call is wrong: the generated types say so before anything is sent.
import createClient from "openapi-fetch";
import type { paths } from "./punctual_api.js";

const client = createClient<paths>({ baseUrl: "http://127.0.0.1" });

// @ts-expect-error there is no such field
void client.POST("/jobs", { body: { name: "a", schedule_type: "IMMEDIATE", colour: 1 } });
// @ts-expect-error a CRON job needs an expression
void client.POST("/jobs", { body: { name: "a", schedule_type: "CRON" } });
// @ts-expect-error the task has no such runtime
void client.POST("/jobs", { body: { name: "a", schedule_type: "IMMEDIATE", task: { type: "script", runtime: "ruby" } } });
// @ts-expect-error there is no such status
void client.GET("/jobs", { params: { query: { status: ["GONE"] } } });
// @ts-expect-error there is no such call
void client.GET("/job");
