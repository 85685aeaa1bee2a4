"""Logins of browsers: how long they last, and what a cookie alone may not do."""

import pytest

from entrepot.gateway.http.console.logins import Logins
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError, Request
from sim.entropy import SimEntropy
from tests.unit.gateway.http.management.house import BOSS, House, in_house

HERE, THERE = "10.0.0.1", "10.0.0.2"


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_ms(self) -> int:
        return round(self.now_s * 1_000)

    def monotonic(self) -> float:
        return self.now_s


class Browser:
    """A browser that keeps its cookie."""

    def __init__(self, house: House, *, is_tls: bool = False) -> None:
        self.clock = FakeClock()
        self.house = house
        entropy = house.broker.entropy
        assert isinstance(entropy, SimEntropy)
        self.logins = Logins(house.login, self.clock, entropy, "test", is_tls=is_tls)
        self.cookie = ""

    def log_in(self, user: str = BOSS, host: str = HERE) -> str:
        principal = self.house.broker.access.principal(user, host)
        login, header = self.logins.begin(principal)
        self.cookie = header.partition(";")[0]
        return login.csrf_token

    def asks(self, method: str = "GET", host: str = HERE, **headers: str) -> str | None:
        sent = {"cookie": f"other=1; {self.cookie}", "host": "h"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        found = self.logins.principal(Request(method, "/", sent, b""), host)
        return None if found is None else found.user


@in_house(asks=True)
async def test_a_cookie_tells_who_asks(house: House) -> None:
    browser = Browser(house)
    assert browser.asks() is None
    token = browser.log_in()
    assert browser.asks() == BOSS
    assert browser.asks("PUT", x_csrf_token=token) == BOSS
    for wrong in ("", "x", token + "é"):
        with pytest.raises(HttpError):
            browser.asks("DELETE", x_csrf_token=wrong)
    assert browser.asks(host=THERE) is None
    assert browser.asks(authorization="Basic x") is None  # Who says so otherwise is asked that.
    browser.cookie += "x"
    assert browser.asks() is None


@in_house(asks=True)
async def test_the_cookie_is_for_no_script_and_no_other_site(house: House) -> None:
    principal = house.broker.access.principal(BOSS, HERE)
    _, plain = Browser(house).logins.begin(principal)
    assert plain.endswith("; Path=/; HttpOnly; SameSite=Strict")
    _, secure = Browser(house, is_tls=True).logins.begin(principal)
    assert secure.endswith("; Secure")


@in_house(asks=True)
async def test_a_login_ends(house: House) -> None:
    browser = Browser(house)
    browser.log_in()
    step_s = http_limits.LOGIN_IDLE_MS_MAX / 1_000 - 1
    for _ in range(4):  # It is used now and then.
        browser.clock.now_s += step_s
        if browser.asks() is None:
            break
    assert browser.asks() is None  # It is too old.
    browser.log_in()
    browser.clock.now_s += step_s + 2
    assert browser.asks() is None
    browser.log_in()
    await house.add_user(BOSS)  # With the same password, but who knows?
    assert browser.asks() is None
    browser.log_in()
    request = Request("DELETE", "/", {"cookie": browser.cookie}, b"")
    assert "Max-Age=0" in browser.logins.end(request)
    assert browser.asks() is None


@in_house(asks=True)
async def test_there_are_not_too_many(house: House) -> None:
    browser = Browser(house)
    browser.log_in()
    first = browser.cookie
    browser.log_in()
    second = browser.cookie
    for _ in range(http_limits.LOGINS_MAX - 1):
        browser.cookie = first
        assert browser.asks() == BOSS  # What is used stays.
        browser.log_in()
    assert len(browser.logins) == http_limits.LOGINS_MAX
    browser.cookie = second
    assert browser.asks() is None
