"""One row of every shipped mapping, as it has to be stored from the stand-ins' records."""

from __future__ import annotations

from typing import Any

from tests.contract.sources.server import ago, stored
from tests.contract.sources.stripe import CREATED

ROWS: dict[str, dict[str, Any]] = {
    "github_issues": {
        "id": 1002, "tenant_id": "example", "number": 2, "title": "Found a bug",
        "body": "I'm having a problem with this.", "state": "closed", "state_reason": "completed",
        "author": "octocat", "assignees": ["octocat"], "labels": ["bug"], "milestone": "v1.0",
        "comments": 0, "locked": False, "created_at": "2024-02-01T10:00:00.000000Z",
        "updated_at": "2024-05-01T10:00:00.000000Z", "closed_at": "2024-05-01T10:00:00.000000Z",
    },
    "github_pull_requests": {
        "id": 2004, "tenant_id": "example", "number": 4, "title": "Amazing new feature",
        "body": "Please pull these awesome changes in!", "state": "closed", "draft": False,
        "author": "octocat", "requested_reviewers": ["other_user"], "labels": [],
        "base_branch": "main", "head_branch": "new-topic",
        "head_sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e",
        "merge_commit_sha": "e5bd3914e2e596debea16f433f57875b5b90bcd6",
        "created_at": "2024-02-01T10:00:00.000000Z", "updated_at": "2024-04-01T10:00:00.000000Z",
        "closed_at": "2024-03-01T10:00:00.000000Z", "merged_at": "2024-03-01T10:00:00.000000Z",
    },
    "gitlab_issues": {
        "id": 42, "tenant_id": "example", "number": 2, "project_id": 4,
        "title": "Consequatur vero maxime deserunt laboriosam est voluptas dolorem.",
        "description": "Ratione dolores corrupti mollitia soluta quia.", "state": "closed",
        "kind": "issue", "author": "eileen.lowe", "assignees": ["root"], "labels": ["foo", "bar"],
        "milestone": "v0.1", "confidential": False, "due_date": "2024-07-22", "comments": 1,
        "created_at": "2024-01-02T15:31:51.081000Z", "updated_at": "2024-06-04T15:31:46.176000Z",
        "closed_at": "2024-06-04T15:31:46.176000Z",
    },
    "stripe_events": {
        "id": "evt_5", "type": "invoice.upcoming", "created": stored(ago(days=4)),
        "api_version": "2024-06-20", "object_id": None, "livemode": False,
    },
    "stripe_customers": {
        "id": "cus_a", "email": "a@shop.example", "name": "Jenny Rosen", "phone": None,
        "country": "NO", "currency": "nok", "balance": -500, "delinquent": False, "metadata": {},
        "created": stored(CREATED),
    },
    "stripe_invoices": {
        "id": "in_1", "number": None, "customer": "cus_a", "customer_email": "a@shop.example",
        "status": "open", "currency": "usd", "total": 1000, "amount_due": 1000, "amount_paid": 0,
        "amount_remaining": 1000, "due_date": None, "period_start": stored(CREATED),
        "created": stored(CREATED),
    },
    "sentry_issues": {
        "id": 1, "tenant_id": "example", "short_id": "EXAMPLE-1",
        "title": "This is an example error", "culprit": "raven.scripts.runner in main",
        "level": "error", "status": "unresolved", "substatus": "ongoing", "priority": "high",
        "platform": "python", "assigned_to": None, "events": 2, "users": 2,
        "first_seen": stored(ago(days=9)), "last_seen": stored(ago(days=2)),
        "permalink": "https://sentry.io/organizations/example-org/issues/1/",
    },
    "sentry_events": {
        "id": f"{1:032x}", "tenant_id": "example", "issue_id": 1341191803,
        "occurred_at": stored(ago(days=1)), "kind": "error", "platform": "python",
        "title": "ZeroDivisionError: integer division or modulo by zero", "message": "",
        "location": "example:142", "culprit": "example.run", "user_id": "7",
        "user_email": "someone@shop.example",
    },
    "jira_issues": {
        "id": 10002, "key": "ED-2", "project": "ED", "summary": "My first work item",
        "kind": "Story", "status": "To Do", "status_category": "new", "resolution": None,
        "priority": "Medium", "labels": ["backend"], "assignee": None,
        "reporter": "5b10a2844c20165700ede21g", "parent": "ED-1", "due_date": "2024-12-31",
        "created": "2024-01-02T00:00:00.000000Z", "updated": "2024-06-03T12:00:01.000000Z",
        "resolved": None,
    },
    "hubspot_contacts": {
        "id": "2", "email": "contact2@shop.example", "first_name": "Bryan", "last_name": "Cooper",
        "phone": None, "company": "HubSpot", "lifecycle": "customer",
        "created_at": "2024-01-31T10:00:00.000000Z", "updated_at": "2024-03-01T10:00:00.002000Z",
    },
    "zendesk_tickets": {
        "id": 35432, "subject": "Help, my printer is on fire!",
        "description": "The fire is very colorful.", "status": "pending", "priority": "high",
        "kind": "incident", "channel": "web", "tags": ["enterprise", "other_tag"],
        "requester_id": 20978392, "submitter_id": 76872, "assignee_id": 235323,
        "organization_id": 509974, "group_id": 98738, "satisfaction": "good",
        "custom_fields": [{"id": 27642, "value": "745"}],
        "created_at": "2024-01-20T22:55:29.000000Z", "updated_at": "2024-02-05T10:38:52.000000Z",
    },
    "shopify_orders": {
        "id": 450789462, "name": "#1002", "email": "bob.norman@mail.example",
        "customer_id": 207119551, "financial_status": "paid", "fulfillment_status": None,
        "currency": "USD", "total_price": "598.94", "subtotal_price": "597.00",
        "total_tax": "11.94", "total_discounts": "10.00", "test": False, "tags": "imported, vip",
        "updated_at": stored(ago(days=29)), "cancelled_at": stored(ago(days=29)),
        "closed_at": None,
    },
}  # fmt: skip
"""By mapping. Columns that hold whole documents or the time of the fetch are left out."""
