# ruff: noqa: E501 (sentences and templates stay on one line)
"""Story plots: five to six beats, each with several wordings. All written for this project."""

from __future__ import annotations

Plot = tuple[str, str, tuple[str, ...]]

# (name, what the request says the hero does, beats with variants split by "|")
PLOTS: tuple[Plot, ...] = (
    ("lost_thing", "loses a {thing}", (
        "{hero} was a {job} who lived in {place}.|In {place} there lived a {job} called {hero}.|Everyone in {place} knew {hero}, the {job}.",
        "{time}, when {weather}, {he} reached into a pocket and found that the {thing} was gone.|{time} {he} noticed that the {thing} was missing. Outside, {weather}.",
        "{he} looked under the bed, behind the stove and along the path to the well, but found only dust.|{he} searched every drawer and every coat, and asked at each door in the street.",
        "Then {friend} came by with a {animal} that had been digging under the hedge.|At last a {animal} ran past with something shining in its mouth, and {friend} ran after it.",
        "\"Is this yours?\" asked {friend}, and held out the {thing}.|{friend} laughed, wiped off the mud and put the {thing} into {his} hand.",
        "From that day on {hero} kept it on a string, and the {animal} was given a bone every Sunday.|{hero} never lost it again, and the two of them stayed friends for life.",
    )),
    ("storm", "must get home through a storm", (
        "{hero} had walked to the next village to sell {food}.|The {job} {hero} was on the way back from market with a basket of {food}.",
        "On the way home the sky turned black and the wind began to howl.|Halfway home a storm came over the hills faster than any horse.",
        "The bridge was already under water, so {he} climbed the bank and followed the old wall.|The path had become a stream, and {he} held on to the fence with both hands.",
        "A light was moving ahead: it was {friend}, who had come out with a lantern.|Somewhere a bell was ringing. {friend} was pulling the rope so that travellers could find the way.",
        "Together they reached the house, lit a fire and hung their coats to dry.|They sat down in the kitchen, soaked and laughing, and ate hot soup.",
        "By morning the storm had passed, and {place} shone as if it had been washed.|In the morning the sun came out, and {hero} went to mend the bridge.",
    )),
    ("letter", "finds a letter that is thirty years old", (
        "While cleaning the attic, {hero} found a letter behind a loose board.|{time} the {job} {hero} moved a heavy chest and saw an old letter on the floor.",
        "It was addressed to {his} {kin}, and nobody had ever opened it.|The paper was yellow, the seal was whole, and the name on it was that of {his} {kin}.",
        "{he} carried it across {place} without reading a word.|{he} put it in an inside pocket and set out at once, although {weather}.",
        "The {kin} read it slowly by the window and did not speak for a long time.|The {kin} read the first line, sat down, and asked for a glass of water.",
        "\"An old friend asked me to forgive him,\" came the answer at last. \"I did that long ago.\"|\"It says that {friend} is sorry about the {thing},\" said the {kin}, and smiled.",
        "That evening they wrote a reply together, and {hero} took it to the post.|They wrote back the same night, and a week later {friend} stood at the door with flowers.",
    )),
    ("repair", "repairs a machine that nobody else can repair", (
        "The clock on the square of {place} had stopped in the spring.|The great pump in {place} had not moved since last winter.",
        "Three experts came from the city, shook their heads and went home again.|The mayor offered ten coins to anyone who could make it run.",
        "{hero}, a {job}, asked if {he} might try.|\"Let me look,\" said {hero}, who was only a {job}.",
        "{he} listened to the wheels for an hour and then took out a single {thing} that somebody had dropped inside.|{he} cleaned every part with oil, and behind the last wheel {he} found a {thing}.",
        "With a groan and a click the machine began to turn.|There was a cough, a rattle, and then a steady beat like a heart.",
        "The mayor paid the ten coins, and {hero} bought supper for the whole street.|Nobody laughed at {hero} again, and {friend} became {his} first apprentice.",
    )),
    ("animal_rescue", "helps a hurt {animal}", (
        "{time} {hero} heard a small sound behind the shed.|{hero}, a {job} in {place}, found a {animal} lying beside the road.",
        "The {animal} had hurt its leg and could not stand.|A {animal} was caught in the wire, and it looked up without moving.",
        "{he} wrapped it in a coat and carried it home, talking to it softly all the way.|Slowly, so as not to frighten it, {he} cut the wire and lifted the animal out.",
        "For two weeks {he} fed it {food} and changed the bandage every evening.|{friend}, who knew about such things, showed {him} how to bind the leg.",
        "When the leg was strong again, {he} opened the gate and stepped back.|One day it stood up by itself and walked to the door.",
        "The {animal} ran to the trees, but each {season} it came back to the same gate.|It never went far. On cold nights it still sleeps beside the stove.",
    )),
    ("contest", "enters a contest", (
        "Every {season} there was a contest in {place}, and every year {friend} won it.|The people of {place} were proud of their {season} contest.",
        "{hero} had never entered, because {he} was only a {job} and had no fine tools.|This time the {job} {hero} wrote {his} name on the list, last of all.",
        "For a month {he} practised at night, when the others slept.|{he} worked until {his} hands hurt, and told nobody except {his} {kin}.",
        "On the day itself {he} was so nervous that {he} dropped the {thing}.|When {his} turn came, {weather}, and the crowd grew silent.",
        "Yet the work was so simple and so good that the judges looked at it twice.|{he} took a deep breath, thought of {his} {kin}, and began.",
        "{hero} came second, and {friend}, who came first, shook {his} hand and asked to be taught.|The prize was only a ribbon, but it hangs above the door to this day.",
    )),
    ("journey", "travels to {city} for the first time", (
        "{hero} had never been further than the edge of {place}.|All {his} life the {job} {hero} had wanted to see {city}.",
        "{time} a card arrived: {his} {kin} in {city} was ill and asked for {him}.|{his} {kin} gave {him} a ticket, a {thing} and a bag of {food}.",
        "The train was full, and {he} stood at the window and counted the bridges.|On the train {he} shared the {food} with {friend}, who was going the same way.",
        "In {city} the streets were loud and every house looked alike.|{city} was larger than {he} had dreamed, and within an hour {he} was lost.",
        "A child with a {animal} took {him} by the sleeve and led {him} to the right door.|{friend} had written the way on a scrap of paper, and so {he} found the house at last.",
        "\"You came,\" said the {kin}, and that was worth the whole journey.|{he} stayed for a month and came home with more stories than luggage.",
    )),
    ("garden", "grows a garden where nothing grows", (
        "Behind the house of {hero} there was a yard of stones and dust.|The {job} {hero} had a piece of land in {place} that nobody wanted.",
        "\"Nothing will ever grow there,\" said {friend}.|{friend} offered two coins for it and laughed.",
        "{he} carried the stones away one by one and dug in leaves from the forest.|All {season} {he} brought water from the well in two old buckets.",
        "First came a single green shoot, then ten, then too many to count.|After the first rain a thin green line appeared along the wall.",
        "By autumn there were beans, plums and a row of sunflowers taller than the fence.|The next year it gave so much that {he} had to borrow a cart.",
        "{hero} left a basket at each door, and the fullest one at the door of {friend}.|{friend} came to look, took off {his_friend} hat, and asked for some seeds.",
    )),
    ("mistake", "makes a mistake that turns out well", (
        "{hero} worked as a {job}, and {he} was always in a hurry.|Nobody in {place} was as quick, or as careless, as {hero} the {job}.",
        "{time} {he} mixed up two orders and sent the wrong box to {friend}.|One day {he} read a number upside down and made ninety instead of six.",
        "When {he} saw what had happened, {he} ran all the way, red in the face.|{he} hid the result under a cloth and hoped that nobody would ask.",
        "But {friend} was standing in the doorway and smiling.|Then {friend} lifted the cloth, looked, and began to laugh.",
        "\"I never knew I wanted this,\" said {friend}. \"Can you make another?\"|\"The school needs exactly ninety,\" said {friend}, \"and it needs them today.\"",
        "Since then {hero} reads every order twice, but is not afraid of mistakes.|So the mistake became the best sale of the year.",
    )),
    ("lighthouse", "keeps a light burning through the night", (
        "On a rock outside {place} stood a lighthouse, and {hero} kept it.|{hero} had looked after the lamp above {place} for twenty years.",
        "{time} the oil ran out just as the wind was rising.|One night the great lamp cracked, and {weather}.",
        "Out in the dark a ship was coming closer to the rocks.|{he} knew that {friend} was at sea in a boat no bigger than a cart.",
        "{he} gathered every candle, mirror and {thing} in the house and set them in the window.|{he} burned the chairs, then the table, and last of all the door.",
        "The ship saw the small yellow light and turned away in time.|Toward morning a horn sounded three times, and {he} knew that the boat was safe.",
        "The next day the captain came with a barrel of oil and a new chair.|{friend} brought fresh {food}, and they ate it sitting on the floor.",
    )),
    ("music", "learns to play the {instrument}", (
        "{hero} found a {instrument} at the back of a shop in {city}.|{his} {kin} left {hero} a {instrument} with two broken strings and a good case.",
        "{he} could not play a single note.|At first it sounded like a {animal} with a cold.",
        "Every evening after work the {job} practised in the barn, where only the hens could complain.|{friend}, who lived across the yard, shut the window and then opened it again.",
        "By {season} {he} knew three songs, and by the end of the year {he} knew thirty.|Little by little the noise became a tune, and the tune became a song.",
        "At the feast in {place} the band was one player short.|When {friend} was married, the musicians were held up by the snow.",
        "{hero} stood up, tuned the {instrument} and played until midnight.|So {hero} played alone, and nobody sat down before the morning.",
    )),
    ("bargain", "tries to sell a {thing} at the market", (
        "{hero} needed money for a new roof, and so {he} took the {thing} to market.|{time} the {job} {hero} set a {thing} on a cloth between the {food} and the hats.",
        "The first buyer offered one coin and walked away.|A man in a tall hat turned it over, sniffed, and put it back.",
        "At noon a girl stopped and asked where it came from.|Then {friend} came by and asked for its story.",
        "So {hero} told how {his} {kin} had carried it across the sea in a storm.|{he} told the truth: it was old, it was dented, and it had been in {his} family for ninety years.",
        "While {he} spoke, more and more people gathered to listen.|The longer {he} talked, the less {he} wanted to sell it.",
        "In the end {he} took the {thing} home and came back every week, with a hat for the coins, to tell stories.|\"Keep it,\" said {friend}, \"and let me pay for the story.\" The roof was mended within a month.",
    )),
    # Held out: never in training text.
    ("bridge", "builds a bridge to visit {friend}", (
        "A deep stream ran between the house of {hero} and the house of {friend}.|The {job} {hero} could see the window of {friend} across the gorge, but the way around took half a day.",
        "{time} {he} decided to build a bridge.|\"I will come to supper on Sunday,\" {he} called across, \"on dry feet.\"",
        "{he} cut two tall pines and dragged them to the bank with a borrowed donkey.|The first rope broke, the second was too short, and the third one held.",
        "On the other side {friend} had begun to build as well, without saying a word.|On Saturday a plank was still missing in the middle.",
        "They met above the water and shook hands.|{friend} laid down the kitchen door, and it fitted.",
        "Today half the village walks across it and nobody remembers the long way round.|They ate supper on the bridge that night, with their feet above the water.",
    )),
    ("portrait", "is asked to paint a portrait of the mayor", (
        "The mayor of {place} wanted a portrait and sent for {hero}.|{hero}, who was really a {job}, had once painted a sign, and so the mayor sent for {him}.",
        "\"Make me look wise,\" said the mayor, \"and a little taller.\"|The mayor sat down with a {thing} in one hand and did not move for an hour.",
        "{he} painted what {he} saw: a tired face, kind eyes and a crooked collar.|For three days {he} painted and let nobody look, not even {friend}.",
        "When the cloth came off, the hall was silent.|The mayor looked at the picture for a long time.",
        "\"That is my father,\" said the mayor softly, \"and that is me.\"|Then {friend} began to clap, and everybody joined in.",
        "The portrait hangs in the town hall, and {hero} still paints signs.|{hero} was paid in {food}, which is more than most painters get.",
    )),
    ("night_school", "secretly learns to read at night", (
        "Nobody knew that {hero}, the best {job} in {place}, could not read.|{hero} had worked since the age of nine and had never been to school.",
        "{time} a letter came, and {he} pretended to have lost {his} glasses.|When people handed {him} a paper, {he} nodded and put it in {his} pocket.",
        "At last {he} knocked at the door of {friend} and told the truth.|{his} {kin} noticed it first and left a child's book on the table.",
        "Each night, when the shutters were closed, they read one page together.|The letters jumped like fleas at first, but one after another they stood still.",
        "In {season} {he} read the name of {his} own street aloud.|After a year {he} wrote {his} first letter, four lines long, and posted it to {friend}.",
        "Now {he} reads the news to the others in the tavern and does the voices as well.|There are forty books in the workshop today, and anyone may borrow them.",
    )),
)

HELD_OUT_PLOTS = frozenset({"bridge", "portrait", "night_school"})
INSTRUMENTS = ("fiddle", "accordion", "guitar", "mandolin", "cello", "banjo", "lute")
