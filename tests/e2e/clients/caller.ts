// Use the types that openapi-typescript generated, with openapi-fetch: create, list, read, change,
// run, fail.
import createClient from "openapi-fetch";
import type { components, paths } from "./punctual_api.js";

type Problem = components["schemas"]["Problem"];

export async function call(baseUrl: string): Promise<unknown> {
  const client = createClient<paths>({ baseUrl });

  function answered<T>(answer: { data?: T; error?: Problem }): T {
    if (answer.data === undefined) {
      throw new Error(answer.error?.detail ?? "no answer");
    }
    return answer.data;
  }

  const sent: components["schemas"]["NewJob"] = {
    name: "from TypeScript",
    schedule_type: "CRON",
    cron_expression: "0 9 * * 1-5",
    task: { type: "script", runtime: "bash", code: "echo hello" },
  };
  const job = answered(await client.POST("/jobs", { body: sent }));
  const params = { path: { job_id: job.job_id } };
  const page = answered(
    await client.GET("/jobs", {
      params: { query: { name_prefix: "from TypeScript", status: ["SCHEDULED"] } },
    }),
  );
  const read = answered(await client.GET("/jobs/{job_id}", { params }));
  const changed = answered(
    await client.PATCH("/jobs/{job_id}", { params, body: { interval_seconds: 3600 } }),
  );
  const ordered = answered(await client.POST("/jobs/{job_id}/runNow", { params }));
  const run = answered(
    await client.GET("/jobs/{job_id}/runs/{run_id}", {
      params: { path: { job_id: job.job_id, run_id: ordered.run_id } },
    }),
  );
  const wrong = await client.POST("/jobs", {
    body: { name: "wrong", schedule_type: "CRON", cron_expression: "0 25 * * *" },
  });
  const missing = await client.GET("/jobs/{job_id}", {
    params: { path: { job_id: "01a1ee87-3200-7000-8000-000000000002" } },
  });
  return {
    job_id: job.job_id,
    listed: page.jobs.map((one) => one.job_id),
    max_retries: read.max_retries,
    types: [read.schedule_type, changed.schedule_type],
    trigger: run.trigger,
    refused: [wrong.error?.code, ...(wrong.error?.errors ?? []).map((error) => error.field)],
    missing: missing.error?.status,
  };
}
