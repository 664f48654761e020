"""How the page looks, by day and by night."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--soft:#f4f6f8;
--link:#0a58ca;--s0:#0b62c4;--s1:#b3470a;--s2:#1a7f37;--s3:#8a3ffc;--s4:#a8157f;--s5:#57606a;--ins:#dafbe1;--del:#ffe3e0}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ed;--dim:#a5adb7;--line:#3a414b;--soft:#1d2127;
--link:#7ab7ff;--s0:#6cb2ff;--s1:#ffa05c;--s2:#5bd083;--s3:#c2a0ff;--s4:#ff8fd8;--s5:#b5bdc7;--ins:#12361f;
--del:#4a1d1a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:100rem;padding:1rem 1.5rem 4rem;background:var(--bg);color:var(--fg);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.75rem;margin:.5rem 0 0;overflow-wrap:anywhere}
h2{font-size:1.35rem;margin:2.5rem 0 .75rem;border-bottom:2px solid var(--line);padding-bottom:.25rem}
small{font-size:.875rem;color:var(--dim)}
h3{font-size:1.05rem;margin:0 0 .5rem;overflow-wrap:anywhere}h4{font-size:1rem;margin:.75rem 0 .25rem}
p{margin:.25rem 0 .75rem;max-width:60rem}header p,.note{color:var(--dim)}
a{color:var(--link)}:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;background:var(--bg);padding:.5rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:.5rem 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1.25rem;align-items:start}
article,figure{border:1px solid var(--line);border-radius:.5rem;padding:1rem;margin:0;min-width:0}
article figure{border:0;padding:0}figure{max-width:52rem}.wide{margin-bottom:1.25rem}
figcaption,caption{font-weight:600;text-align:left;margin-bottom:.5rem;caption-side:top}
.scroll{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:min(100%,20rem)}
th,td{padding:.3rem .75rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{color:var(--dim);font-weight:600}tbody th{font-weight:500}
#overview td{overflow-wrap:anywhere;max-width:34rem}
th.n,td.n{text-align:right;white-space:nowrap}
svg{display:block;width:100%;height:auto;overflow:visible}svg text{font-size:13px;fill:var(--dim)}
.grid{stroke:var(--line)}.zero{stroke:var(--dim)}
polyline,path,.swatch line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.swatch line{stroke-width:3}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1);stroke-dasharray:7 4}.s2{stroke:var(--s2);stroke-dasharray:2 4}
.s3{stroke:var(--s3);stroke-dasharray:10 3 2 3}.s4{stroke:var(--s4);stroke-dasharray:14 5}
.s5{stroke:var(--s5)}
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.25rem;list-style:none;padding:0;margin:.25rem 0 .5rem}
.legend .swatch{display:inline-block;width:28px;height:10px;margin-right:.4rem;vertical-align:middle}
.spark{width:120px;height:24px}.bar{width:100px;height:10px;margin-top:.45rem}.bar rect{fill:var(--s0)}
summary{cursor:pointer;padding:.2rem 0;overflow-wrap:anywhere}
details details{margin-left:1.1rem}.month>summary{font-weight:600}
details[open]>summary{color:var(--link)}
#turns details{content-visibility:auto}#turns h4{margin-left:1.1rem}
pre,blockquote{background:var(--soft);border-left:3px solid var(--line);padding:.5rem .75rem;
margin:.25rem 0 .75rem;white-space:pre-wrap;overflow-wrap:anywhere;max-height:32rem;overflow-y:auto}
pre,code{font:.9rem/1.45 ui-monospace,monospace}
ins{background:var(--ins);text-decoration:none}del{background:var(--del);text-decoration:none}
@media(max-width:40rem){body{padding:.75rem .75rem 3rem}svg text{font-size:18px}}
@media print{.scroll{overflow:visible}pre{max-height:none}}
"""
