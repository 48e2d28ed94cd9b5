"""The versions of a job, newest first, with their authors and changed fields."""

from tests.support.acceptance.contract import NEVER_SOON, Api


def test_each_change_of_fields_is_a_version(api: Api) -> None:
    job = api.create(**NEVER_SOON)
    path = f"/jobs/{job['job_id']}"
    for fields in ({"tags": {"team": "data"}}, {"payload": {"n": 1}, "priority": "HIGH"}):
        assert api("PATCH", path, fields).status_code == 200
    api.order(job["job_id"], "pause")
    versions = api.get(f"{path}/versions")["versions"]
    assert [sorted(version["changed"]) for version in versions] == [
        ["payload", "priority"],
        ["tags"],
        [],
    ]
    shown = api.get(path)
    assert {name: shown[name] for name in versions[0]["job"]} == versions[0]["job"]
    assert versions[2]["job"]["tags"] == job["tags"]
    assert {version["by"] for version in versions} == {job["created_by"]}
    pages = api.pages(f"{path}/versions", "versions", limit=1)
    assert list(pages) == versions
    assert api("GET", f"{path}/versions", colour="red").status_code == 422
